"""quant: finding weights, channels and biases of weighted groups in real models."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from npubake.errors import StageError
from npubake.quant.operands import ModelFacts, WeightedOperand, weighted_operand
from tests.quant.graphs import Arrays, parsed


def operand_of(text: str, constants: Arrays) -> WeightedOperand:
    model, summary = parsed(text, constants)
    attributes = {
        node.name: {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        for node in model.graph.node
    }
    (group,) = (group for group in summary.groups if group.kind in ("conv", "conv_transpose", "linear"))
    return weighted_operand(summary, group, ModelFacts(initializers=constants, attributes=attributes))


def ones(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.ones(shape, np.float32)


def test_convolution() -> None:
    text = "t (float[1,4,5,5] x) => (float[1,6,5,5] y) { y = Conv<group = 2>(x, w, b) }"
    found = operand_of(text, {"w": ones(6, 2, 1, 1), "b": np.arange(6, dtype=np.float32)})
    assert (found.initializer, found.axis, found.channels) == ("w", 0, 6)
    assert (found.node, found.bias_node, found.bias_name) == ("node_y", "node_y", "b")
    np.testing.assert_array_equal(found.channel_bias(), np.arange(6))


def test_grouped_transposed_convolution_has_its_channels_on_axis_one() -> None:
    text = "t (float[1,4,5,5] x) => (float[1,6,5,5] y) { y = ConvTranspose<group = 2>(x, w, b) }"
    found = operand_of(text, {"w": ones(4, 3, 1, 1), "b": ones(6)})
    assert (found.axis, found.channels) == (1, 3)


@pytest.mark.parametrize(("transposed", "axis"), [(0, 1), (1, 0)])
def test_gemm_reads_transb(transposed: int, axis: int) -> None:
    text = f"t (float[2,4] x) => (float[2,6] y) {{ y = Gemm<transB = {transposed}>(x, w, b) }}"
    found = operand_of(text, {"w": ones(6, 4) if transposed else ones(4, 6), "b": ones(6)})
    assert (found.axis, found.channels) == (axis, 6)


def test_matmul_with_an_add_behind_it() -> None:
    text = "t (float[2,3,4] x) => (float[2,3,6] y) { m = MatMul(x, w) s = Add(b, m) y = Relu(s) }"
    found = operand_of(text, {"w": ones(4, 6), "b": ones(6)})
    assert (found.axis, found.bias_node, found.bias_name) == (1, "node_s", "b")


def test_one_bias_for_all_channels_is_repeated() -> None:
    text = "t (float[2,4] x) => (float[2,6] y) { m = MatMul(x, w) y = Add(m, b) }"
    found = operand_of(text, {"w": ones(4, 6), "b": np.array([2.5], np.float32)})
    bias = found.channel_bias()
    assert bias is not None
    assert bias.tolist() == [2.5] * 6


def test_no_bias() -> None:
    found = operand_of("t (float[1,2,5,5] x) => (float[1,3,5,5] y) { y = Conv(x, w) }", {"w": ones(3, 2, 1, 1)})
    assert found.channel_bias() is None


def test_a_gemm_that_optimize_should_have_folded_is_refused() -> None:
    text = "t (float[2,4] x) => (float[2,6] y) { y = Gemm(x, w, b) }"
    constants = {"w": ones(4, 6), "b": ones(6)}
    _, summary = parsed(text, constants)
    facts = ModelFacts(initializers=constants, attributes={"node_y": {"alpha": 0.5, "beta": 4.0}})
    with pytest.raises(StageError) as caught:
        weighted_operand(summary, summary.groups[0], facts)
    (fault,) = caught.value.faults
    assert fault.where == "node_y"
    assert "alpha = 0.5, beta = 4" in fault.what


def test_a_group_without_constant_is_refused_by_name() -> None:
    text = "t (float[2,4] x) => (float[2,6] y) { y = Gemm(x, w, b) }"
    _, summary = parsed(text, {"w": ones(4, 6), "b": ones(6)})
    with pytest.raises(StageError) as caught:
        weighted_operand(summary, summary.groups[0], ModelFacts(initializers={}, attributes={}))
    assert caught.value.faults[0].where == "node_y"
