"""The traps of ONNX Runtime that kernels must step around: each avoided by construction, or shown in values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from tests.fixedpoint.builds import Case, all_runs, by_hand, calibrated, float_model, held, node
from tests.fixedpoint.operators import OPERATORS, WEIGHTED, normal
from tests.fixedpoint.test_operators import feeds_of

Array = NDArray[Any]


def lowered(name: str, lane: str = "a8w8", seed: int = 5) -> tuple[Case, onnx.ModelProto, dict[str, Array]]:
    rng = np.random.default_rng(seed)
    model = OPERATORS[name](rng)
    feeds = feeds_of(model, rng, 2.0)
    case = calibrated(model, [feeds], lane)
    return case, case.lower().model, feeds


def constants(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
@pytest.mark.parametrize("name", OPERATORS)
def test_no_forbidden_form_is_written(name: str, lane: str) -> None:
    """Signed weights, functions of floats, quantisation along the last axis, scalar divisors: none is there at all."""
    _, model, _ = lowered(name, lane)
    values = constants(model)
    types = {value.name: value.type.tensor_type for value in (*model.graph.value_info, *model.graph.input)}
    makers = {output: entry for entry in model.graph.node for output in entry.output}
    for entry in model.graph.node:
        assert entry.op_type not in {
            "Sigmoid", "Tanh", "Exp", "Erf", "Gelu", "Softmax", "Log", "Reciprocal", "ReduceMean", "GlobalAveragePool",
            "AveragePool", "LayerNormalization", "Gather" if "gather" not in name else "",
        }  # trap 6: they differ from CPU to CPU  # fmt: skip
        assert entry.domain == ""
        for tensor in entry.input:
            if tensor in values and entry.op_type in ("QLinearConv", "ConvInteger", "MatMulInteger"):
                assert values[tensor].dtype != np.int8  # trap 1: uint8 x int8 saturates without VNNI
        if entry.op_type == "QuantizeLinear" and values[entry.input[1]].size > 1:
            axis = next(a.i for a in entry.attribute if a.name == "axis")
            rank = len(types[entry.input[0]].shape.dim)
            assert axis < rank - 1  # trap 5: the last axis is slow
        if entry.op_type == "QuantizeLinear":
            assert types[entry.input[0]].elem_type == onnx.TensorProto.FLOAT  # trap 7: int32 is not taken
        if entry.op_type == "Div" and makers.get(entry.input[0]) is not None:
            maker = makers[entry.input[0]].op_type
            scalar = entry.input[1] in values and values[entry.input[1]].size == 1
            assert not (maker == "MatMul" and scalar)  # trap 4: fused to a factor at ENABLE_ALL
        if entry.op_type == "Mul":
            for left, right in ((0, 1), (1, 0)):
                maker_of = makers.get(entry.input[left])
                factor = values.get(entry.input[right])
                if maker_of is not None and maker_of.op_type in ("Conv", "ConvTranspose") and factor is not None:
                    assert np.array_equal(factor, np.rint(factor))  # trap 2: only integers may be folded into weights
        if entry.op_type in ("MaxPool", "Clip", "Max", "Pad", "Resize"):
            assert types[entry.input[0]].elem_type != onnx.TensorProto.INT16  # no int16 kernel
        if entry.op_type == "MaxPool":
            assert types[entry.input[0]].elem_type == onnx.TensorProto.FLOAT  # uint8 takes 40 times as long


@pytest.mark.parametrize("lane", ["a8w8", "fp16_a8w8"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_dequantize_never_stands_before_an_integer_kernel(name: str, lane: str) -> None:
    """Trap 3: DequantizeLinear before a Conv lets the runtime quantise the weights anew."""
    _, model, _ = lowered(name, lane)
    outputs = {value.name for value in model.graph.output}
    for entry in model.graph.node:
        if entry.op_type == "DequantizeLinear":
            assert entry.output[0] in outputs


def test_scale_behind_a_conv_is_not_folded_into_its_weights() -> None:
    """Trap 2 in values: an accumulator that float groups read is scaled once, at every optimisation level."""
    rng = np.random.default_rng(7)
    w, v = normal(rng, 6, 3, 3, 3), normal(rng, 4, 6, 1, 1)
    nodes = [node("Conv", "x w", "a"), node("Tan", "a", "b"), node("Conv", "a v", "y"), node("Neg", "b", "z")]
    model = float_model(nodes, {"x": [1, 3, 8, 8]}, {"w": w, "v": v}, ["a", "b", "y", "z"])
    feeds = feeds_of(model, rng, 1.0)
    case = calibrated(model, [feeds], "fp16_a8w8")
    assert case.parameters.groups["a/Conv"].precision == "int8"
    one_conv = float_model([node("Conv", "x w", "a")], {"x": [1, 3, 8, 8]}, {"w": w}, ["a"])
    single = calibrated(one_conv, [feeds], "a8w8")
    expected = single.expected(feeds)["a"]
    for found in all_runs(single.lower("float32").model, feeds):
        np.testing.assert_array_equal(found["a"], expected)


def test_even_counts_tie_to_even_everywhere() -> None:
    """A 2 x 2 average of equal scales: sums of 2 modulo 4 are exact ties."""
    model = float_model(
        [node("AveragePool", "x", "y", kernel_shape=[2, 2], strides=[2, 2])], {"x": [1, 1, 2, 512]}, {}, ["y"]
    )
    rng = np.random.default_rng(0)
    values = rng.integers(-127, 128, (1, 1, 2, 512)).astype(np.float32)
    case = by_hand(model, {"x": held(zero_point=128), "y": held(zero_point=128)})
    sums = values.astype(int).reshape(2, 256, 2).sum(axis=(0, 2))
    assert (sums % 4 == 2).sum() > 20
    expected = [2 * (s // 8) + [0, 0, 0, 1, 1, 1, 2, 2][s % 8] for s in sums.tolist()]
    for found in all_runs(case.lower().model, {"x": values}):
        assert found["y"].reshape(-1).tolist() == expected


def test_int16_indices_wrap_to_the_right_entry() -> None:
    """GatherElements counts negative indices from the end."""
    model = float_model([node("Neg", "x", "y")], {"x": [1, 6]}, {}, ["y"])
    values = np.array([[32767, -32767, -1, 1, 0, -20000]], np.float32)
    case = by_hand(model, {"x": held("int16"), "y": held("int16")})
    for found in all_runs(case.lower().model, {"x": values}):
        np.testing.assert_array_equal(found["y"], -values)
