"""Products in every spelling, against numpy's ``matmul`` and ``einsum`` in float64: sides, batches, equations."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npubake.graph.execution import random_feeds, run_model
from npubake.graph.groups import find_groups
from npubake.graph.inference import infer_shapes
from npubake.graph.model_file import serialise
from npubake.graph.optimizing import optimize_model
from npubake.graph.passes.normalise_gemm import normalise_gemm
from npubake.graph.passes.place_constant_factors import place_constant_factors
from npubake.graph.passes.replace_einsums import replace_einsums
from tests.graph.product_cases import EINSUMS, FACTORS, PRODUCTS, SPELLINGS
from tests.graph.writing import Array, assert_close, constants_of, normal, operators
from tests.kinds.graphs import model, node, value


def _rewritten(source: onnx.ModelProto) -> onnx.ModelProto:
    """By both passes; twice changes nothing, and no group is left without a kernel."""
    made = place_constant_factors(replace_einsums(source).model).model
    onnx.checker.check_model(made, full_check=True)
    assert serialise(place_constant_factors(replace_einsums(made).model).model) == serialise(made)
    assert "float" not in {group.kind for group in find_groups(optimize_model(made).model)}
    return made


def _wide(source: onnx.ModelProto) -> tuple[dict[str, Array], dict[str, Array]]:
    feeds = random_feeds(source, seed=5)
    return feeds, {name: value.astype(np.float64) for name, value in {**feeds, **constants_of(source)}.items()}


@pytest.mark.parametrize("name", FACTORS)
def test_a_constant_on_either_side_is_a_layer(name: str) -> None:
    source = SPELLINGS[name]()
    feeds, wide = _wide(source)
    made = _rewritten(source)
    first, second = FACTORS[name][2].split(", ")
    assert_close(run_model(made, feeds)["y"], np.matmul(wide[first], wide[second]).astype(np.float32), 1e-5, name)
    kinds = {group.kind for group in find_groups(made)}
    assert kinds & {"linear", "conv"}
    assert "MatMul_y" in {node.name for node in made.graph.node}  # the layer keeps its name, which overrides state


@pytest.mark.parametrize("name", EINSUMS)
def test_an_einsum_is_what_numpy_makes_of_it(name: str) -> None:
    source = SPELLINGS[name]()
    feeds, wide = _wide(source)
    made = _rewritten(source)
    equation, shapes, _ = EINSUMS[name]
    expected = np.einsum(equation, *(wide[tensor] for tensor in shapes))
    assert_close(run_model(made, feeds)["y"], np.asarray(expected, np.float32), 1e-5, name)
    assert "Einsum" not in operators(made)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_equations_are_what_numpy_makes_of_them(data: st.DataObject) -> None:
    """Two operands with any labels in any order, any of them in the result, either of them constant."""
    sizes = dict(zip("abcde", data.draw(st.permutations((1, 2, 3, 4, 5))), strict=True))
    terms = ["".join(data.draw(st.lists(st.sampled_from("abcde"), max_size=4, unique=True))) for _ in range(2)]
    known = sorted(set("".join(terms)))
    result = "".join(data.draw(st.lists(st.sampled_from(known), unique=True))) if known else ""
    constant = data.draw(st.sampled_from(("", "x", "z")))
    equation = f"{','.join(terms)}->{result}"
    shapes = {name: [sizes[label] for label in term] for name, term in zip("xz", terms, strict=True)}
    inputs = [value(name, shape) for name, shape in shapes.items() if name != constant]
    constants = {constant: normal(*shapes[constant])} if constant else {}
    einsum = node("Einsum", "x z", "y", equation=equation)
    outputs = [value("y", [sizes[label] for label in result])]
    source = infer_shapes(model([einsum], constants, inputs, outputs, opset=21))
    feeds, wide = _wide(source)
    expected = np.asarray(np.einsum(equation, wide["x"], wide["z"]), np.float32)
    made = place_constant_factors(replace_einsums(source).model).model
    onnx.checker.check_model(made, full_check=True)
    assert "Einsum" not in operators(made)
    scale = float(np.einsum(equation, abs(wide["x"]), abs(wide["z"])).max())  # where sums cancel, nothing is left
    np.testing.assert_allclose(run_model(made, feeds)["y"], expected, rtol=0, atol=1e-6 * max(scale, 1.0))


@pytest.mark.parametrize("name", ["gemm of two inputs", "gemm of a constant and an input"])
def test_a_gemm_whose_second_operand_is_computed_is_a_product(name: str) -> None:
    source = PRODUCTS[name]()
    feeds, wide = _wide(source)
    made = normalise_gemm(source).model
    first, second, addend = source.graph.node[0].input
    turned = name == "gemm of two inputs"
    a, b = (wide[first].T, wide[second].T) if turned else (wide[first], wide[second])
    expected = 0.5 * (a @ b) + (3.0 if turned else 1.0) * wide[addend]
    assert_close(run_model(made, feeds)["y"], expected.astype(np.float32), 1e-5, name)
    assert "Gemm" not in operators(made)
    assert "float" not in {group.kind for group in find_groups(optimize_model(source).model)}
