"""Sources that are quantised already: QDQ form becomes float with its ranges kept; integer operators are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from npubake.errors import RecipeError
from npubake.graph.importing import import_model
from npubake.quant.parameters import QuantizationParameters
from tests.kinds.graphs import Array, conv, model, node, pictures, value, weights
from tests.kinds.road import bake, run, sqnr


def _fake_quantised(kind: Any = np.uint8, opset: int = 17, per_channel: bool = False) -> onnx.ModelProto:
    """Conv and Relu with quantisers on input, weights, bias and output, as an exporter of trained ones writes them."""
    zero = np.array(0 if np.dtype(kind).kind == "i" else 128, kind)
    codes = np.random.default_rng(5).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    step = np.array([0.002, 0.004, 0.001, 0.003] if per_channel else 0.002, np.float32)
    zeros = np.zeros(step.shape, np.int8)
    constants: dict[str, Array] = {
        "xs": np.array(0.02, np.float32),
        "zero": zero,
        "codes": codes,
        "ws": step,
        "wz": zeros,
        "bcodes": np.array([100, -2000, 3000, 5], np.int32),
        "bs": np.array(0.00004, np.float32),
        "ys": np.array(0.0125, np.float32),
        "yz": np.array(0 if np.dtype(kind).kind == "u" else -128, kind),
    }
    nodes = [
        node("QuantizeLinear", "x xs zero", "xq"),
        node("DequantizeLinear", "xq xs zero", "xf"),
        node("DequantizeLinear", "codes ws wz", "w", axis=0),
        node("DequantizeLinear", "bcodes bs", "b"),
        conv("xf", "t"),
        node("Relu", "t", "u"),
        node("QuantizeLinear", "u ys yz", "uq"),
        node("DequantizeLinear", "uq ys yz", "y"),
    ]
    return model(nodes, constants, [value("x", (1, 3, 8, 8))], [value("y", (1, 4, 8, 8))], opset)


@pytest.mark.parametrize(
    ("kind", "opset", "per_channel"), [(np.uint8, 13, False), (np.int8, 17, True), (np.uint8, 21, True)]
)
def test_pairs_go_weights_are_computed_and_ranges_are_kept(
    kind: Any, opset: int, per_channel: bool, tmp_path: Path
) -> None:
    source = _fake_quantised(kind, opset, per_channel)
    examples = pictures()
    baked = bake(source, examples, tmp_path)
    summary = baked.summary
    assert [node.op_type for node in summary.nodes] == ["Conv", "Relu"]
    assert any("quantised already" in warning for warning in baked.warnings)
    low, high = (-128, 127) if np.dtype(kind).kind == "i" else (0, 255)
    zero = 0 if np.dtype(kind).kind == "i" else 128
    assert summary.declared["x"] == pytest.approx(((low - zero) * 0.02, (high - zero) * 0.02))
    assert summary.declared["y"] == pytest.approx((0.0, 255 * 0.0125))
    parameters = QuantizationParameters.load(baked.files["calibrate.parameters"]).tensors
    assert (parameters["x"].low, parameters["x"].high) == pytest.approx(summary.declared["x"])
    assert parameters["x"].scale == pytest.approx(0.02, rel=2e-3)
    for feeds in examples:
        (before,), (after,) = run(source.SerializeToString(), feeds), baked.run("quantize", feeds)
        assert sqnr(before, after) > 25  # both round to steps of 0.0125, which lie a little apart


def test_a_relu_that_a_quantiser_took_into_its_grid_comes_back(tmp_path: Path) -> None:
    """ONNX Runtime's quantiser leaves no Relu or Clip in front of a grid that begins at 0: without it the model is
    another one, in float too.
    """
    source = _fake_quantised()
    source.graph.node.remove(next(each for each in source.graph.node if each.op_type == "Relu"))
    next(each for each in source.graph.node if each.input[0] == "u").input[0] = "t"
    examples = pictures()
    baked = bake(source, examples, tmp_path, until="optimize")
    for feeds in examples:
        (before,), (after,) = run(source.SerializeToString(), feeds), baked.run("optimize", feeds)
        assert sqnr(before, after) > 20  # both round; without the Relu 0 dB


def test_a_weight_is_what_its_codes_say(tmp_path: Path) -> None:
    source = _fake_quantised(per_channel=True)
    baked = bake(source, pictures(), tmp_path, until="optimize")
    made = onnx.load(baked.files["optimize.model"])
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    given = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    weight, bias = (held[name] for name in made.graph.node[0].input[1:])
    np.testing.assert_array_equal(weight, given["codes"].astype(np.float32) * given["ws"].reshape(4, 1, 1, 1))
    np.testing.assert_array_equal(bias, given["bcodes"].astype(np.float32) * given["bs"])


def test_fake_quantised_float_weights_come_to_stand_on_their_grid(tmp_path: Path) -> None:
    source = model(
        [
            node("QuantizeLinear", "w s z", "q", axis=1),
            node("DequantizeLinear", "q s z", "f", axis=1),
            node("MatMul", "x f", "y"),
        ],
        {"w": weights(5, 4), "s": np.array([0.01, 0.02, 0.003, 0.04], np.float32), "z": np.zeros(4, np.int8)},
        [value("x", (2, 5))],
        [value("y", (2, 4))],
    )
    feeds = {"x": weights(2, 5, seed=4)}
    baked = bake(source, [feeds] * 2, tmp_path, until="import")
    np.testing.assert_array_equal(baked.run("import", feeds)[0], run(source.SerializeToString(), feeds)[0])


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT8])
def test_integers_at_the_edges_of_the_graph_are_spelt_in_float_operators(kind: int, tmp_path: Path) -> None:
    """The graph takes integers and gives integers; what it computes does not change."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    source = model(
        [
            node("DequantizeLinear", "x s z", "f"),
            node("Mul", "f k", "g"),
            node("QuantizeLinear", "g s z", "y"),
        ],
        {"s": np.array(0.25, np.float32), "z": np.array(3, dtype), "k": np.array(1.75, np.float32)},
        [value("x", (4, 64), kind)],
        [value("y", (4, 64), kind)],
    )
    feeds = {"x": np.arange(256).reshape(4, 64).astype(np.uint8).view(dtype)}
    baked = bake(source, [feeds] * 2, tmp_path, until="optimize")
    np.testing.assert_array_equal(baked.run("optimize", feeds)[0], run(source.SerializeToString(), feeds)[0])


def test_two_quantisers_of_one_tensor_keep_the_wider_range(tmp_path: Path) -> None:
    source = model(
        [
            node("Relu", "x", "r"),
            *[node("QuantizeLinear", f"r s{i} z", f"q{i}") for i in (1, 2)],
            *[node("DequantizeLinear", f"q{i} s{i} z", f"f{i}") for i in (1, 2)],
            node("Add", "f1 f2", "y"),
        ],
        {"s1": np.array(0.01, np.float32), "s2": np.array(0.02, np.float32), "z": np.array(0, np.uint8)},
        [value("x", (2, 3))],
        [value("y", (2, 3))],
    )
    baked = bake(source, pictures(2, (2, 3)), tmp_path, until="optimize")
    assert baked.summary.declared["r"] == pytest.approx((0.0, 255 * 0.02))


def test_the_recipes_own_range_of_an_input_goes_before_the_sources(tmp_path: Path) -> None:
    baked = bake(_fake_quantised(), pictures(), tmp_path, input_ranges={"x": [-4.0, 4.0]})
    parameters = QuantizationParameters.load(baked.files["calibrate.parameters"]).tensors
    assert (parameters["x"].low, parameters["x"].high) == (-4.0, 4.0)


def test_operators_on_integers_are_refused_by_name_with_the_way_out() -> None:
    source = model(
        [node("QLinearConv", "x xs xz w ws wz ys yz", "y", "first"), node("MatMulInteger", "a c", "d", "second")],
        {
            **{name: np.array(0.1, np.float32) for name in ("xs", "ws", "ys")},
            **{name: np.array(0, np.uint8) for name in ("xz", "wz", "yz")},
            "w": np.ones((2, 3, 1, 1), np.uint8),
            "c": np.ones((3, 3), np.uint8),
        },
        [value("x", (1, 3, 4, 4), TensorProto.UINT8), value("a", (2, 3), TensorProto.UINT8)],
        [value("y", (1, 2, 4, 4), TensorProto.UINT8), value("d", (2, 3), TensorProto.INT32)],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    assert [fault.where for fault in caught.value.faults] == ["first", "second"]
    assert all("QDQ" in fault.hint for fault in caught.value.faults)


def test_a_scale_that_is_computed_is_refused_by_name() -> None:
    source = model(
        [
            node("ReduceMax", "x", "m", keepdims=0),
            node("QuantizeLinear", "x m", "q", "dynamic"),
            node("DequantizeLinear", "q m", "y", "back"),
        ],
        {},
        [value("x", (2, 3))],
        [value("y", (2, 3))],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    assert {fault.where for fault in caught.value.faults} == {"dynamic", "back"}
