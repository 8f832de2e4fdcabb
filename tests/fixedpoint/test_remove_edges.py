"""What goes at an edge, what the edge then is, and that the application's part restores the same values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser

from npubake.errors import RecipeError
from npubake.fixedpoint.remove_edges import remove_edges
from npubake.graph.execution import run_model

SOURCE = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,2,3,4] x) => (float[1,4,6] y, float[1,2,3,4] z)
<float s = {0.5}, uint8 zp = {3}, float[2] channel = {0.25, 2.0}, int64[3] shape = {1, 4, 6}, int32 zero = {0}>
{
  [quantise] q = QuantizeLinear(x, s, zp)
  [wide] w = Cast<to: int = 6>(q)
  [negate] n = Neg(w)
  [twice] a = Add(n, n)
  [tail] d = DequantizeLinear<axis: int = 1>(a, channel)
  [turn] t = Transpose<perm: ints = [0, 3, 1, 2]>(d)
  [flat] y = Reshape(t, shape)
  [abs] b = Abs(a)
  [tail2] z = DequantizeLinear<axis: int = 1>(b, channel)
}
"""


def source() -> onnx.ModelProto:
    model = parser.parse_model(SOURCE)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def kinds(model: onnx.ModelProto) -> dict[str, tuple[int, tuple[int, ...]]]:
    values = (*model.graph.input, *model.graph.output)
    return {
        value.name: (value.type.tensor_type.elem_type, tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim))
        for value in values
    }


X = np.random.default_rng(1).normal(0, 20, (1, 2, 3, 4)).astype(np.float32)


def test_outputs_inwards_and_the_application_restores_them() -> None:
    original = source()
    before = original.SerializeToString(deterministic=True)
    model, removed = remove_edges(original, outputs=["Reshape", "Transpose", "Dequantize"])
    assert original.SerializeToString(deterministic=True) == before
    assert [(entry.tensor, entry.node, entry.why) for entry in removed] == [
        ("y", "flat", "remove"),
        ("y", "turn", "remove"),
        ("y", "tail", "remove"),
        ("z", "tail2", "remove"),
    ]
    assert kinds(model)["z"] == (TensorProto.INT32, (1, 2, 3, 4))
    assert kinds(model)["y"] == (TensorProto.INT32, (1, 2, 3, 4))  # z's branch reads it under its new name
    want, got = run_model(original, {"x": X}), run_model(model, {"x": X})
    scale = np.array([0.25, 2.0], dtype=np.float32).reshape(1, 2, 1, 1)
    np.testing.assert_array_equal(got["z"].astype(np.float32) * scale, want["z"])
    restored = (got["y"].astype(np.float32) * scale).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(restored.reshape(1, 4, 6), want["y"])
    last = removed[-1].affine
    assert last is not None
    assert (last.scale, last.zero_point, last.axis) == ((0.25, 2.0), 0, 1)
    assert removed[1].attributes == {"perm": [0, 3, 1, 2]}


def test_what_is_not_in_the_list_stops_the_way_inwards() -> None:
    """An Identity stands between y's Reshape and its Dequantize: only z's Dequantize goes."""
    text = SOURCE.replace("[turn] t = Transpose<perm: ints = [0, 3, 1, 2]>(d)", "").replace(
        "[flat] y = Reshape(t, shape)", "[same] e = Identity(d)  [flat] y = Reshape(e, shape)"
    )
    original = onnx.shape_inference.infer_shapes(parser.parse_model(text), strict_mode=True)
    with pytest.raises(RecipeError) as caught:
        remove_edges(original, outputs=["Transpose"])
    assert caught.value.faults[0].where == "remove.outputs"
    model, removed = remove_edges(original, outputs=["Reshape", "Dequantize"])
    assert [entry.node for entry in removed] == ["flat", "tail2"]
    want, got = run_model(original, {"x": X}), run_model(model, {"x": X})
    np.testing.assert_array_equal(got["y"].reshape(1, 4, 6), want["y"])


def test_inputs() -> None:
    model, removed = remove_edges(source(), inputs=["Quantize"])
    assert kinds(model)["x"] == (TensorProto.UINT8, (1, 2, 3, 4))
    affine = removed[0].affine
    assert affine is not None
    assert (affine.scale, affine.zero_point, removed[0].dtype) == ((0.5,), 3, "uint8")
    fed = np.clip([round(float(value)) + 3 for value in (X / np.float32(0.5)).reshape(-1)], 0, 255)
    got = run_model(model, {"x": fed.reshape(X.shape).astype(np.uint8)})
    want = run_model(source(), {"x": X})
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    model, removed = remove_edges(source(), inputs=["Cast", "Quantize"])
    assert kinds(model)["x"][0] == TensorProto.INT32
    assert [entry.op_type for entry in removed] == ["QuantizeLinear", "Cast"]
    assert removed[1].affine == affine


def test_int32_tail_goes_without_being_named() -> None:
    model, removed = remove_edges(source(), int32_tail=True)
    assert [(entry.tensor, entry.why) for entry in removed] == [("z", "tail int32")]
    assert kinds(model)["z"][0] == TensorProto.INT32
    again, none = remove_edges(model, int32_tail=True)
    assert none == []
    assert again.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_output_that_the_graph_reads_keeps_its_node_inside() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (int32[2] x) => (float[2] y, float[2] z) <float s = {0.5}>
    { [neg] n = Neg(x)  [tail] y = DequantizeLinear(n, s)  [root] z = Abs(y) }
    """
    original = parser.parse_model(text)
    original = onnx.shape_inference.infer_shapes(original, strict_mode=True)
    model, removed = remove_edges(original, outputs=["Dequantize"])
    assert [entry.tensor for entry in removed] == ["y"]
    values = run_model(model, {"x": np.array([3, -7], dtype=np.int32)})
    assert values["y"].tolist() == [-3, 7]
    assert values["y"].dtype == np.int32
    assert values["z"].tolist() == [1.5, 3.5]


def test_axis_follows_a_transpose() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (int32[1,2,3] x) => (float[3,1,2] y) <float[2] s = {0.5, 4.0}>
    {
      [neg] n = Neg(x)
      [turn] t = Transpose<perm: ints = [2, 0, 1]>(n)
      [tail] y = DequantizeLinear<axis: int = 2>(t, s)
    }
    """
    original = onnx.shape_inference.infer_shapes(parser.parse_model(text), strict_mode=True)
    model, removed = remove_edges(original, outputs=["Dequantize", "Transpose"])
    affine = removed[-1].affine
    assert affine is not None
    x = np.arange(6, dtype=np.int32).reshape(1, 2, 3)
    shape = [1, 1, 1]
    shape[affine.axis] = 2
    restored = run_model(model, {"x": x})["y"] * np.array(affine.scale, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(restored.transpose(2, 0, 1), run_model(original, {"x": x})["y"])


def test_moves_on_the_far_side_of_a_node_that_stays() -> None:
    """Reshape and Transpose commute with one scale: they go, Quantize and Dequantize stay."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2,3,4] x) => (float[6,4] y, float[6,4] z)
    <float s = {0.3}, uint8 zp = {9}, int64[2] shape = {6, 4}, float t = {0.7}>
    {
      [in] q = QuantizeLinear(x, s, zp)  [turn] r = Transpose<perm: ints = [1, 0, 2]>(q)
      [wide] w = Cast<to: int = 6>(r)  [neg] n = Neg(w)
      [flat] f = Reshape(n, shape)  [tail] y = DequantizeLinear(f, t)  [root] z = Abs(y)
    }
    """
    original = onnx.shape_inference.infer_shapes(parser.parse_model(text), strict_mode=True)
    model, removed = remove_edges(original, inputs=["Transpose"], outputs=["Reshape"])
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.tensor, entry.node, entry.affine) for entry in removed] == [("x", "turn", None), ("y", "flat", None)]
    assert kinds(model)["x"] == (TensorProto.FLOAT, (3, 2, 4))
    assert kinds(model)["y"] == (TensorProto.FLOAT, (3, 2, 4))
    x = np.random.default_rng(4).normal(0, 30, (2, 3, 4)).astype(np.float32)
    want, got = run_model(original, {"x": x}), run_model(model, {"x": np.ascontiguousarray(x.transpose(1, 0, 2))})
    np.testing.assert_array_equal(got["y"].reshape(6, 4), want["y"])
    np.testing.assert_array_equal(got["z"], want["z"])
    channel = text.replace("float t = {0.7}", "float[4] t = {0.5, 1.0, 2.0, 4.0}")
    channel = channel.replace("Linear(f,", "Linear<axis: int = 1>(f,")
    original = onnx.shape_inference.infer_shapes(parser.parse_model(channel), strict_mode=True)
    with pytest.raises(RecipeError):  # a scale a channel does not commute with a change of shape
        remove_edges(original, outputs=["Reshape"])


def test_untouched_inputs_keep_their_nodes() -> None:
    with pytest.raises(RecipeError):
        remove_edges(source(), inputs=["Quantize"], untouched=["x"])


def test_all_faults_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        remove_edges(source(), inputs=["Conv"], outputs=["Relu"])
    assert [fault.where for fault in caught.value.faults] == ["remove.inputs", "remove.outputs"]
    with pytest.raises(RecipeError) as caught:
        remove_edges(source(), inputs=["Softmax"], outputs=["Softmax", "Reshape"])
    assert [fault.where for fault in caught.value.faults] == ["remove.inputs", "remove.outputs"]
