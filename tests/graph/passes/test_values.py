"""Single passes against values worked out another way: exact fractions, the papers' formulas, hand-made graphs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import onnx
import pytest

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.execution import run_model
from npubake.graph.passes.add_bias import add_bias
from npubake.graph.passes.clamp_mask_constants import FLOOR, clamp_mask_constants
from npubake.graph.passes.eliminate_identities import eliminate_identities
from npubake.graph.passes.fold_affine import fold_affine
from npubake.graph.passes.fold_batch_normalization import fold_batch_normalization
from npubake.graph.passes.fold_constants import fold_constants
from npubake.graph.passes.fold_pad import fold_pad
from npubake.graph.passes.fuse_gelu import fuse_gelu
from npubake.graph.passes.fuse_hard_swish import fuse_hard_swish
from npubake.graph.passes.fuse_layer_normalization import fuse_layer_normalization
from npubake.graph.passes.normalise_gemm import normalise_gemm
from npubake.graph.passes.replace_batch_normalization import replace_batch_normalization
from npubake.graph.passes.split_shared_initializers import split_shared_initializers
from npubake.graph.summary import Provenance
from tests.graph.cases import CASES
from tests.graph.writing import Array, build, constants_of, floats, normal, operators


def _rounded(value: Fraction) -> np.float32:
    return np.float32(float(value))


def test_batch_normalization_folds_to_exact_fractions() -> None:
    """var + eps = 4 and 1/16: the square roots are exact, so the whole fold can be checked with fractions."""
    weight, bias = normal(2, 3, 1, 1), normal(2)
    gamma, beta, mean = floats(3, -0.7), floats(0.1, 5), floats(-2, 0.3)
    model = build(
        "float[1,3,4,4] x => float[1,2,4,4] y",
        "t = Conv(x, w, b) y = BatchNormalization<epsilon=0.0>(t, gamma, beta, mean, variance)",
        w=weight, b=bias, gamma=gamma, beta=beta, mean=mean, variance=floats(4, 0.0625),
    )  # fmt: skip
    folded = fold_batch_normalization(model).model
    assert operators(folded) == ["Conv"]
    new_weight, new_bias = (constants_of(folded)[name] for name in folded.graph.node[0].input[1:])
    for channel, root in enumerate((Fraction(2), Fraction(1, 4))):
        scale = Fraction(float(gamma[channel])) / root
        for index, value in enumerate(weight[channel].ravel()):
            expected = _rounded(Fraction(float(value)) * scale)
            np.testing.assert_allclose(new_weight[channel].ravel()[index], expected, rtol=2**-23)
        offset = (
            Fraction(float(beta[channel])) + (Fraction(float(bias[channel])) - Fraction(float(mean[channel]))) * scale
        )
        np.testing.assert_allclose(new_bias[channel], _rounded(offset), rtol=2**-22)


def test_a_lone_batch_normalization_becomes_depthwise() -> None:
    model = replace_batch_normalization(CASES["batch norm alone"]()).model
    (conv,) = (node for node in model.graph.node if node.op_type == "Conv")
    assert (attribute(conv, "group", 1), constants_of(model)[conv.input[1]].shape) == (4, (4, 1, 1, 1))


def test_scalar_factors_are_recorded_as_scaled() -> None:
    outcome = fold_affine(CASES["conv times scalar"]())
    assert operators(outcome.model) == ["Conv"]
    assert set(outcome.provenance) == {
        Provenance(old="t", new="y", relation="scaled", factor=1 / (50 * 0.125)),
        Provenance(old="u", new="y", relation="scaled", factor=1 / 0.125),
    }


def test_channel_factors_leave_no_trace_of_the_tensor_between() -> None:
    outcome = fold_affine(CASES["conv times channels plus channels"]())
    assert {record.relation for record in outcome.provenance} == {"gone"}


def test_gelu_is_the_formula() -> None:
    model = fuse_gelu(CASES["gelu, div"]()).model
    assert operators(model) == ["Gelu"]
    values = floats(-3, -1, -0.1, 0, 0.1, 1, 2, 3, 8, -8, 0.5, -0.5, 4, 5, 6, 7, -4, -5).reshape(2, 9)
    answer = run_model(model, {"x": values})["y"]
    expected = [0.5 * float(v) * (1 + math.erf(float(v) / math.sqrt(2))) for v in values.ravel()]
    np.testing.assert_allclose(answer.ravel(), expected, rtol=1e-5, atol=1e-6)


def test_hard_swish_is_the_formula() -> None:
    for case in ("hard sigmoid", "clip, product, division", "clip, division, product", "clip, sixth, product"):
        model = fuse_hard_swish(CASES[case]()).model
        assert operators(model) == ["Mul", "HardSwish"], case
        values = np.linspace(-2, 2, 60, dtype=np.float32).reshape(2, 30)
        answer = run_model(model, {"x0": values})["y"].ravel()
        expected = [4 * v * min(max(4 * v + 3, 0), 6) / 6 for v in values.ravel().astype(float)]
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


def test_layer_normalization_is_the_formula() -> None:
    model = fuse_layer_normalization(CASES["layer norm, mul"]()).model
    assert operators(model) == ["LayerNormalization"]
    values = normal(2, 5, 16, scale=3)
    answer = run_model(model, {"x": values})["y"]
    wide = values.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    constants = constants_of(model)
    expected = centred / np.sqrt(variance + 1e-5) * constants["gamma"] + constants["beta"]
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


def test_other_slopes_and_axes_are_left() -> None:
    assert "HardSigmoid" in operators(fuse_hard_swish(CASES["hard sigmoid of another slope"]()).model)
    assert "Sqrt" in operators(fuse_layer_normalization(CASES["layer norm over channels"]()).model)


@pytest.mark.parametrize("case", ["gemm, rows of bias", "gemm, a column of bias"])
def test_a_bias_that_differs_from_row_to_row_is_added_behind(case: str) -> None:
    source = CASES[case]()
    model = normalise_gemm(source).model
    assert operators(model) == ["Gemm", "Add"]
    gemm, add = model.graph.node
    assert len(gemm.input) == 2
    np.testing.assert_array_equal(constants_of(model)[add.input[1]], 2 * constants_of(source)["b"])


def test_gemm_takes_its_one_form() -> None:
    model = normalise_gemm(CASES["gemm, every part"]()).model
    assert operators(model) == ["Transpose", "Gemm"]
    gemm = model.graph.node[1]
    assert {entry.name for entry in gemm.attribute} == {"transB"}
    weight, bias = (constants_of(model)[name] for name in gemm.input[1:])
    np.testing.assert_array_equal(weight, normal(7, 5) / 2)
    np.testing.assert_array_equal(bias, normal(1, 7)[0] * 4)


def test_pads_are_added() -> None:
    conv = fold_pad(CASES["pad into conv"]()).model.graph.node[0]
    assert attribute(conv, "pads", []) == [1, 1, 1, 1]
    pool = fold_pad(CASES["pad into average"]()).model.graph.node[0]
    assert attribute(pool, "pads", []) == [1, 1, 0, 0]
    assert attribute(pool, "count_include_pad", 0) == 1


def _masks(model: onnx.ModelProto) -> list[Array]:
    return [value for name, value in constants_of(model).items() if "mask" in name]


def test_mask_constants_are_clamped_and_the_tensors_between_renamed() -> None:
    outcome = clamp_mask_constants(CASES["mask"]())
    (mask,) = _masks(outcome.model)
    assert mask.min() == FLOOR
    assert set(np.unique(mask)) == {np.float32(FLOOR), np.float32(0)}
    assert [record.old for record in outcome.provenance] == ["a"]
    assert "a" not in {name for node in outcome.model.graph.node for name in node.output}


def test_identities_leave_only_what_computes() -> None:
    model = eliminate_identities(CASES["identities"]()).model
    assert sorted(operators(model)) == ["Abs", "Relu"]


def test_shape_arithmetic_folds_away() -> None:
    model = fold_constants(CASES["fold shapes, exp, product"]()).model
    assert operators(model) == ["Reshape", "Mul", "Add"]
    shape = constants_of(model)[model.graph.node[0].input[1]]
    np.testing.assert_array_equal(shape, [1, 2, 3, -1])


def test_shared_constants_get_one_copy_each() -> None:
    model = split_shared_initializers(CASES["shared weight and bias"]()).model
    first, second = (node for node in model.graph.node if node.op_type == "Conv")
    assert not set(first.input[1:]) & set(second.input[1:])
    constants = constants_of(model)
    for one, other in zip(first.input[1:], second.input[1:], strict=True):
        np.testing.assert_array_equal(constants[one], constants[other])
    assert first.input[1:] == ["w", "b"]


def test_readers_are_not_looked_up_anew_for_every_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias that a thousand layers share took half a minute: after each copy all readers were found again."""
    body = " ".join(f"t{index} = Conv(x, w, b)" for index in range(9))
    results = ", ".join(f"float[1,2,4,4] t{index}" for index in range(9))
    model = build(f"float[1,3,4,4] x => {results}", body, w=normal(2, 3, 1, 1), b=normal(2))
    monkeypatch.setattr(GraphEditor, "readers", None)
    made = split_shared_initializers(model).model
    assert len({node.input[2] for node in made.graph.node}) == 9


def test_a_missing_bias_is_zero() -> None:
    model = add_bias(CASES["no bias"]()).model
    np.testing.assert_array_equal(constants_of(model)[model.graph.node[0].input[2]], np.zeros(4, np.float32))
