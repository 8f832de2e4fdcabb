"""graph.transforms.weights against the operators themselves."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npubake.graph.execution import run_model
from npubake.graph.transforms.weights import (
    bias_shift,
    column_energies,
    column_ranges,
    row_maxima,
    row_ranges,
    scale_weight,
)
from tests.graph.writing import Array, build, normal

CASES = {
    "conv": ("float[1,6,5,5] x => float[1,4,3,3] y", "y = Conv(x, w)", normal(4, 6, 3, 3)),
    "grouped": ("float[1,6,5,5] x => float[1,4,3,3] y", "y = Conv<group=2>(x, w)", normal(4, 3, 3, 3)),
    "depthwise": ("float[1,6,5,5] x => float[1,6,3,3] y", "y = Conv<group=6>(x, w)", normal(6, 1, 3, 3)),
    "transposed": ("float[1,6,3,3] x => float[1,4,5,5] y", "y = ConvTranspose<group=2>(x, w)", normal(6, 2, 3, 3)),
    "gemm": ("float[1,6] x => float[1,4] y", "y = Gemm(x, w)", normal(6, 4)),
    "gemm turned": ("float[1,6] x => float[1,4] y", "y = Gemm<transB=1>(x, w)", normal(4, 6)),
    "matmul": ("float[1,3,6] x => float[1,3,4] y", "y = MatMul(x, w)", normal(6, 4)),
}
INPUTS = np.exp2(np.array([0, 1, -2, 3, -1, 2], np.float64))


def _model(case: str, weight: Array) -> onnx.ModelProto:
    signature, body, _ = CASES[case]
    return build(signature, body, w=weight)


@pytest.mark.parametrize("case", CASES)
def test_rows_and_columns_move_out_of_the_operator(case: str) -> None:
    """(R W C) x = R (W (C x)), bits and all, for powers of two."""
    weight = CASES[case][2]
    model = _model(case, weight)
    node, (source,), (result,) = model.graph.node[0], model.graph.input, model.graph.output
    shape = [dim.dim_value for dim in source.type.tensor_type.shape.dim]
    outputs = result.type.tensor_type.shape.dim[-1 if len(shape) != 4 else 1].dim_value
    rows = np.exp2(np.arange(outputs, dtype=np.float64) - 2)

    def along(factors: Array) -> Array:
        return np.asarray(factors.reshape(-1, 1, 1) if len(shape) == 4 else factors, np.float32)

    x = normal(*shape)
    scaled = scale_weight(node, weight, rows, INPUTS).astype(np.float32)
    left = run_model(_model(case, scaled), {"x": x})["y"]
    right = run_model(model, {"x": x * along(INPUTS)})["y"] * along(rows)
    np.testing.assert_array_equal(left, right)
    assert scale_weight(node, weight, None, None).tobytes() == weight.astype(np.float64).tobytes()


@pytest.mark.parametrize("case", [case for case in CASES if case != "transposed"])
def test_a_constant_input_shifts_every_position(case: str) -> None:
    model = _model(case, CASES[case][2])
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.broadcast_to(INPUTS.reshape(-1, 1, 1) if len(shape) == 4 else INPUTS, shape).astype(np.float32)
    answer = run_model(model, {"x": x})["y"]
    shift = bias_shift(model.graph.node[0], CASES[case][2], INPUTS)
    shaped = shift.reshape(-1, 1, 1) if len(shape) == 4 else shift
    np.testing.assert_allclose(answer, np.broadcast_to(shaped, answer.shape), rtol=1e-5)


def test_ranges_by_row_and_by_column() -> None:
    weight = np.array([[1, -4, 2], [0.5, 0.25, 0]], np.float32)  # two outputs, three inputs
    node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    assert row_ranges(node, weight).tolist() == [4, 0.5]
    columns = column_ranges(node, weight)
    assert columns is not None
    assert columns.tolist() == [1.0, 1.0, 0.5]
    assert column_energies(node, weight).tolist() == [1.25, 16.0625, 4.0]
    assert row_maxima(node, weight, np.array([8.0, 1.0, 1.0])).tolist() == [[8.0, 4.0]]


def test_a_depthwise_column_shares_its_scale_with_none_and_a_transposed_one_with_all_groups() -> None:
    depthwise = build(*CASES["depthwise"][:2], w=CASES["depthwise"][2]).graph.node[0]
    assert column_ranges(depthwise, CASES["depthwise"][2]) is None
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=2)
    weight = np.array([1, 4], np.float32).reshape(2, 1, 1, 1)  # two groups of one input and one output
    columns = column_ranges(node, weight)
    assert columns is not None
    assert columns.tolist() == [0.25, 1.0]
