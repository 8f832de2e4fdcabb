"""graph.constant_evaluation: against exact rational arithmetic, and against ONNX Runtime where that is exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper

from npubake.graph.constant_evaluation import Array, evaluate_node
from npubake.graph.execution import run_model
from tests.graph.writing import build, floats, integers, normal

_SMALL = st.floats(-100, 100, width=32)


def _node(op_type: str, inputs: int, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, [f"i{index}" for index in range(inputs)], ["o"], name="node", **attributes)


def _one(node: onnx.NodeProto, *inputs: Array | None) -> Array:
    results = evaluate_node(node, list(inputs), 21)
    assert results is not None
    return results[0]


@given(hnp.arrays(np.float32, (3, 5), elements=_SMALL), hnp.arrays(np.float32, (5, 2), elements=_SMALL))
def test_products_are_within_one_rounding_of_the_exact_sum(left: Array, right: Array) -> None:
    result = _one(_node("MatMul", 2), left, right)
    for row in range(3):
        for column in range(2):
            terms = [Fraction(float(left[row, k])) * Fraction(float(right[k, column])) for k in range(5)]
            exact = sum(terms, Fraction(0))
            error = abs(Fraction(float(result[row, column])) - exact)
            assert error <= abs(exact) * Fraction(1, 2**23) + Fraction(1, 2**40)


@pytest.mark.parametrize("turned", [0, 1])
def test_a_gemm_of_constants_is_a_constant(turned: int) -> None:
    generator = np.random.default_rng(5)
    left, right, added = (generator.normal(size=size).astype(np.float32) for size in ((5, 4), (4, 3), (1, 3)))
    a, b = (left.T, right.T) if turned else (left, right)
    made = _one(_node("Gemm", 3, alpha=0.5, beta=-4.0, transA=turned, transB=turned), a, b, added)
    exact = 0.5 * (left.astype(np.float64) @ right.astype(np.float64)) - 4.0 * added.astype(np.float64)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, exact, rtol=1e-6)


@given(hnp.arrays(np.float32, (4, 3, 2), elements=_SMALL), st.booleans())
def test_means_are_within_one_rounding_of_the_exact_mean(values: Array, keep: bool) -> None:
    node = _node("ReduceMean", 2, keepdims=int(keep))
    result = _one(node, values, integers(0, -1))
    assert result.shape == ((1, 3, 1) if keep else (3,))
    for index, answer in enumerate(result.reshape(3)):
        exact = sum((Fraction(float(value)) for value in values[:, index].ravel()), Fraction(0)) / 8
        assert abs(Fraction(float(answer)) - exact) <= abs(exact) * Fraction(1, 2**23) + Fraction(1, 2**40)


@pytest.mark.parametrize(
    ("operator", "function"), [("Exp", math.exp), ("Sin", math.sin), ("Tanh", math.tanh), ("Erf", math.erf)]
)
def test_functions_are_the_rounded_double(operator: str, function: object) -> None:
    values = normal(50, scale=2)
    result = _one(_node(operator, 1), values)
    assert callable(function)
    expected = [np.float32(function(float(value))) for value in values]
    np.testing.assert_array_equal(result, np.array(expected))


def test_sigmoid_at_the_ends() -> None:
    np.testing.assert_array_equal(_one(_node("Sigmoid", 1), floats(-1e4, 0, 1e4)), floats(0, 0.5, 1))


@settings(max_examples=25, deadline=None)
@given(hnp.arrays(np.float32, (2, 6), elements=_SMALL), st.sampled_from(["Add", "Sub", "Mul", "Max", "Min"]))
def test_exact_operators_equal_onnx_runtime(values: Array, operator: str) -> None:
    model = build("float[2,6] a, float[6] b => float[2,6] o", f"o = {operator}(a, b)")
    other = normal(6, scale=10)
    expected = run_model(model, {"a": values, "b": other})["o"]
    np.testing.assert_array_equal(_one(_node(operator, 2), values, other), expected)


def test_integer_powers_and_products_are_exact() -> None:
    np.testing.assert_array_equal(_one(_node("Pow", 2), integers(3, -7), integers(20, 3)), integers(3**20, -343))
    assert _one(_node("ReduceProd", 1), integers(3, 5, 7), None).reshape(()) == 105


def test_what_has_no_portable_arithmetic_is_not_evaluated() -> None:
    assert evaluate_node(_node("Conv", 2), [normal(1, 1, 3, 3), normal(1, 1, 1, 1)], 21) is None
    assert evaluate_node(_node("ReduceMean", 1), [integers(1, 2)], 21) is None


def test_a_value_outside_the_domain_raises() -> None:
    with pytest.raises(ValueError, match="domain"):
        evaluate_node(_node("Log", 1), [floats(-1)], 21)
