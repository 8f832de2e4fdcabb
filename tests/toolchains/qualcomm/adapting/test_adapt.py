"""The adapted model: its forms, its edges and its record, on the CPU alone; the compiler is asked in tests/qualcomm."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from npubake.errors import StageError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.graph.summarising import summarise
from npubake.layout.runtime_input import encode
from npubake.toolchains.qualcomm.adapting.adapt import adapt
from npubake.toolchains.qualcomm.adapting.assumed import assumed_adaptation
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest, Sources
from tests.fixedpoint.builds import calibrated, float_model, node, session, statistics
from tests.qualcomm.emulated import adapted, decibels, encoded, runs

RANDOM = np.random.default_rng(3)
FEEDS = [{"x": RANDOM.uniform(-2, 3, (1, 4, 8, 8)).astype(np.float32)} for _ in range(2)]
WEIGHTS = RANDOM.standard_normal((6, 4, 3, 3)).astype(np.float32) / 6


def convolution(*behind: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    held: dict[str, np.ndarray] = {"w": WEIGHTS, "b": np.linspace(-1, 1, 6, dtype=np.float32), **constants}
    last = "out" if behind else ""
    first = node("Conv", "x w b", "c" if behind else "out", pads=[1] * 4)
    return float_model([first, *behind], {"x": [1, 4, 8, 8]}, held, [last or "out"])


def operators(model: onnx.ModelProto) -> list[str]:
    return [each.op_type for each in model.graph.node if "Linear" not in each.op_type]


def of_lane(model: onnx.ModelProto, lane: str, **params: Any) -> Adapted:
    case = calibrated(model, FEEDS, lane, quantisers="everywhere", **params)
    seen = statistics(model, case.summary, FEEDS)
    return adapt(model, case.summary, Sources(parameters=case.parameters, statistics=seen), AdaptRequest(lane=lane))


@pytest.mark.parametrize(("lane", "least"), [("a8w8", 36.0), ("a16w8", 42.0), ("a16w16", 75.0)])
def test_the_qdq_model_is_near_the_float_one(lane: str, least: float) -> None:
    model = convolution(node("Relu", "c", "out"))
    made = of_lane(model, lane)
    assert decibels(runs(model, FEEDS, "out"), runs(made.model, FEEDS, "out")) > least
    assert operators(made.model) == ["Conv"]  # the grid of its output starts at 0
    assert [form["node"] for form in made.record["forms"]] == ["out/Relu"]


@pytest.mark.parametrize(("lane", "dtype"), [("a8w8", "uint8"), ("a16w8", "uint16")])
def test_the_binary_takes_and_gives_codes_that_mean_what_the_float_edges_mean(lane: str, dtype: str) -> None:
    made = of_lane(convolution(), lane)
    record = made.record
    assert (record["inputs"]["x"]["dtype"], record["outputs"]["out"]["dtype"]) == (dtype, dtype)
    kinds = {"uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16}
    edges = (*made.compilable.graph.input, *made.compilable.graph.output)
    assert [value.type.tensor_type.elem_type for value in edges] == [kinds[dtype]] * 2
    codes = session(made.compilable).run(None, {"x": encoded(record, "x", FEEDS[0]["x"])})[0]
    held = record["outputs"]["out"]
    real = (codes.astype(np.float32) - held["zero_point"]) * np.float32(held["scale"])
    np.testing.assert_allclose(real, runs(made.model, FEEDS[:1], "out")[0], atol=1.01 * held["scale"])


def test_weights_and_biases_have_zero_points_in_the_file() -> None:
    """Without one the compiler takes int4 weights for something else, and says nothing."""
    model = of_lane(convolution(), "w4a16").compilable
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    stored = [each for each in model.graph.node if each.op_type == "DequantizeLinear" and each.input[0] in constants]
    assert sorted(constants[each.input[0]].data_type for each in stored) == [TensorProto.INT32, TensorProto.INT4]
    for each in stored:
        assert len(each.input) == 3
        assert not numpy_helper.to_array(constants[each.input[2]]).astype(int).any()


def test_a_dilated_convolution_by_weights_of_16_bits_has_zeros_between_them() -> None:
    attributes = {"pads": [2, 3, 2, 3], "dilations": [2, 3], "kernel_shape": [3, 3]}
    dilated = node("Conv", "x w b", "out", **attributes)
    model = float_model([dilated], {"x": [1, 4, 8, 8]}, {"w": WEIGHTS, "b": np.ones(6, np.float32)}, ["out"])
    made = of_lane(model, "a16w16")
    (convolved,) = (each for each in made.model.graph.node if each.op_type == "Conv")
    assert {each.name for each in convolved.attribute} == {"pads", "kernel_shape"}
    (codes,) = (numpy_helper.to_array(each) for each in made.model.graph.initializer if each.name == "w/quantized")
    assert codes.shape == (6, 4, 5, 7)
    assert np.count_nonzero(codes) <= WEIGHTS.size
    assert decibels(runs(model, FEEDS, "out"), runs(made.model, FEEDS, "out")) > 75
    assert [form["node"] for form in made.record["forms"]] == [convolved.name]
    assert operators(of_lane(model, "a16w8").model) == ["Conv"]
    assert of_lane(model, "a16w8").record["forms"] == []


@pytest.mark.parametrize(
    ("layer", "refused"),
    [
        (node("Conv", "x w", "out", pads=[0, 4, 0, 4]), True),
        (node("Conv", "x w", "out", pads=[0, 4, 0, 4], auto_pad="NOTSET", strides=[2, 2]), True),
        (node("ConvTranspose", "x v", "out"), True),
        (node("ConvTranspose", "x v", "out", strides=[1, 2]), False),
        (node("Conv", "x u", "out", pads=[4] * 4, dilations=[4, 4], group=4), True),
        (node("Conv", "x u", "out", pads=[3] * 4, dilations=[3, 3], group=4), False),
    ],
)
def test_a_large_window_by_weights_of_16_bits_is_refused(layer: onnx.NodeProto, refused: bool) -> None:
    drawn = {name: RANDOM.standard_normal((4, count, *sides)).astype(np.float32)
             for name, count, sides in (("w", 4, (1, 9)), ("v", 4, (1, 9)), ("u", 1, (3, 3)))}  # fmt: skip
    model = float_model([layer], {"x": [1, 4, 8, 8]}, {layer.input[1]: drawn[layer.input[1]]}, ["out"])
    of_lane(model, "a16w8")
    if refused:
        with pytest.raises(StageError) as raised:
            of_lane(model, "a16w16")
        assert [fault.where for fault in raised.value.faults] == [layer.name]
    else:
        of_lane(model, "a16w16")


def test_every_activation_is_accounted_for() -> None:
    model = convolution(node("Sigmoid", "c", "s"), node("Mul", "c s", "out"))
    asked = [{"match": {"names": ["s/Sigmoid"]}, "set": {"activation": "float16"}}]
    case = calibrated(model, FEEDS, "a8w8", quantisers="everywhere")
    assert of_lane(model, "a8w8").record["coverage"] == {"activations": 4, "quantized": 4, "float": []}
    made = assumed_adaptation(model, case.summary, {"lane": "a8w8", "layer_overrides": asked}).record["coverage"]
    assert made["quantized"] + len(made["float"]) == made["activations"] == 4
    assert {entry["tensor"]: entry["why"] for entry in made["float"]} == dict.fromkeys(
        ["s", "out"], "layer_overrides[0]"
    )


def test_at_8_bits_the_gate_of_a_silu_is_asked_for_and_not_computed() -> None:
    """Measured: the HTP computes x * Sigmoid(x) by one table; a rounded gate costs 6 dB that it does not lose."""
    model = convolution(node("Sigmoid", "c", "s"), node("Mul", "c s", "out"))
    made = of_lane(model, "a8w8")
    rounded = {each.input[0] for each in made.compilable.graph.node if each.op_type == "QuantizeLinear"}
    assert "s" in rounded
    assert "s" not in {each.input[0] for each in made.model.graph.node if each.op_type == "QuantizeLinear"}


@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
def test_a_clip_of_16_bits_is_spelt_otherwise(lane: str) -> None:
    bounds = {"low": np.array(-0.2, np.float32), "high": np.array(0.3, np.float32)}
    model = float_model([node("Clip", "x low high", "out")], {"x": [1, 4, 8, 8]}, bounds, ["out"])
    made = of_lane(model, lane)
    assert operators(made.model) == (["Clip"] if lane == "a8w8" else ["Max", "Min"])
    assert decibels(runs(model, FEEDS, "out"), runs(made.model, FEEDS, "out")) > 30


def test_a_matmul_with_a_bias_is_a_gemm() -> None:
    rows = [{"x": np.random.default_rng(9).uniform(-1, 1, (2, 3, 8)).astype(np.float32)}]
    held = {"w": np.random.default_rng(9).standard_normal((8, 5)).astype(np.float32), "b": np.ones(5, np.float32)}
    model = float_model([node("MatMul", "x w", "p"), node("Add", "p b", "out")], {"x": [2, 3, 8]}, held, ["out"])
    made = adapted(model, rows, "a8w8")
    assert operators(made.model) == ["Reshape", "Gemm", "Reshape"]
    assert decibels(runs(model, rows, "out"), runs(made.model, rows, "out")) > 36


@pytest.mark.parametrize("weights", [{"granularity": "per_group", "group_size": 2}, {"symmetric": False}])
def test_formats_of_weights_without_a_form_are_refused_by_layer(weights: dict[str, object]) -> None:
    with pytest.raises(StageError) as caught:
        of_lane(convolution(), "a8w8", weights=weights)
    assert [fault.where for fault in caught.value.faults] == ["out/Conv"]


def test_a_lane_in_float_is_the_float_model() -> None:
    model = convolution()
    made = adapt(model, summarise(model, ()), Sources(), AdaptRequest(lane="fp16", io="float"))
    assert made.model == model
    assert made.record["coverage"]["quantized"] == 0
    assert [entry["tensor"] for entry in made.record["coverage"]["float"]] == ["x", "out"]


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("kind", "channels"), [("rgb", "rgb"), ("bgr", "rgb"), ("bgr", "bgr"), ("gray", "gray")])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("lane", ["a8w8", "a16w8", "fp16"])
def test_the_boards_bytes_become_the_models_input(
    layout: str, kind: str, channels: str, normalised: bool, lane: str
) -> None:
    """Beside the linear step in float: half a step of the input's grid at most, and what a bias of int32 loses."""
    count = 1 if channels == "gray" else 3
    mean, std = (MEAN[:count], STD[:count]) if normalised else (None, None)
    pixels = np.random.default_rng(9).integers(0, 256, (4, 6, count), dtype=np.uint8)
    axes = (2, 0, 1) if layout == "NCHW" else (0, 1, 2)
    real = pixels.astype(np.float32) / 255
    if mean is not None and std is not None:
        real = (real - np.array(mean, np.float32)) / np.array(std, np.float32)
    planes = real.transpose(axes)[None]
    ends = [{"x": np.full(planes.shape, end, np.float32)} for end in (-2.2 * normalised, 2.7 if normalised else 1.0)]
    model = float_model([node("Relu", "x", "out")], {"x": planes.shape}, {}, ["out"])
    spec = RuntimeInput.from_facts("x", {"type": kind, "channels": channels, "mean": mean, "std": std})
    made = adapted(model, ends, lane, AdaptRequest(lane=lane, runtime=(spec,)))
    fed = encode(spec, pixels)
    assert made.record["inputs"]["x"]["shape"] == list(fed["x"].shape)
    codes = session(made.compilable).run(None, fed)[0]
    held = made.record["outputs"]["out"]
    got = codes if held["scale"] is None else (codes.astype(np.float32) - held["zero_point"]) * held["scale"]
    step = {"a8w8": 4.9 / 255 if normalised else 1 / 255, "a16w8": 0.002, "fp16": 1e-5}[lane]
    np.testing.assert_allclose(got, np.maximum(planes, 0), atol=1.05 * step)


def test_a_layer_of_16_bits_among_others_of_8() -> None:
    """The narrow operand is converted on its edge, on a grid of the same range; what is made has 16 bits, and both
    models agree with the float one better than all in 8 bits.
    """
    model = convolution(
        node("Relu", "c", "r"), node("Conv", "r v", "out"), v=WEIGHTS[:4, :, :1, :1].repeat(2, 1)[:, :6]
    )
    narrow, mixed = of_lane(model, "a8w8"), of_lane(model, "a8w8", int16=("out/Conv",))
    tensors = mixed.record["tensors"]
    assert (tensors["x"]["dtype"], tensors["out"]["dtype"]) == ("uint8", "uint16")
    assert mixed.record["outputs"]["out"]["dtype"] == "uint16"
    floats = runs(model, FEEDS, "out")
    assert decibels(floats, runs(mixed.model, FEEDS, "out")) > decibels(floats, runs(narrow.model, FEEDS, "out"))
    stored = {each.name: numpy_helper.to_array(each) for each in mixed.model.graph.initializer}
    second = next(each for each in mixed.model.graph.node if each.name == "out/Conv")
    read = next(each for each in mixed.model.graph.node if second.input[0] in each.output)
    assert stored[read.input[2]].dtype == np.uint16


def test_functions_that_are_spelt_out_are_kept_apart_at_16_bits() -> None:
    feeds = [{"x": RANDOM.uniform(-2, 3, (1, 16, 6)).astype(np.float32)}]
    softmax = [node("Exp", "x", "e"), node("ReduceSum", "e axes", "s"), node("Div", "e s", "out")]
    gated = [node("Tanh", "x", "t"), node("Mul", "x t", "out")]
    for nodes, constants, forms in (
        (softmax, {"axes": np.array([-1])}, ["out/Div"]),
        (gated, {}, ["t/Tanh"]),
    ):
        model = float_model(nodes, {"x": [1, 16, 6]}, constants, ["out"])
        wide, narrow = (adapted(model, feeds, lane) for lane in ("a16w8", "a8w8"))
        assert [form["node"] for form in wide.record["forms"]] == forms
        assert narrow.record["forms"] == []
        assert decibels(runs(model, feeds, "out"), runs(wide.model, feeds, "out")) > 60


def test_an_output_that_leaves_in_8_bits_a_layer_of_16_passes_through_a_row() -> None:
    model = convolution(node("Conv", "c v", "out", pads=[1] * 4), v=WEIGHTS[:, :1].repeat(6, axis=1))
    feeds = FEEDS[:1]
    case = calibrated(model, feeds, "a8w8", int16=("c/Conv",), quantisers="everywhere")
    seen = statistics(model, case.summary, feeds)
    sources = Sources(parameters=case.parameters, statistics=seen)
    made = adapt(model, case.summary, sources, AdaptRequest(lane="a8w8"))
    held = made.record["outputs"]["out"]
    assert (made.record["tensors"]["c"]["dtype"], held["dtype"]) == ("uint16", "uint8")
    assert operators(made.model) == ["Conv", "Conv"]
    assert operators(made.compilable) == ["Conv", "Conv", "Reshape", "Reshape"]
    codes = session(made.compilable).run(None, {"x": encoded(made.record, "x", feeds[0]["x"])})[0]
    real = (codes.astype(np.float32) - held["zero_point"]) * np.float32(held["scale"])
    np.testing.assert_allclose(real, runs(made.model, feeds, "out")[0], atol=1.01 * held["scale"])


def test_only_planes_that_the_compiler_fuses_wrongly_are_kept_apart() -> None:
    silu = (node("Sigmoid", "c", "s"), node("Mul", "c s", "out"))
    for lane, plane, optimization, apart in (
        ("a16w8", (12, 12), 3, True),
        ("a16w8", (20, 20), 3, False),
        ("a16w8", (20, 20), 1, True),
        ("a16w8", (8, 8), 1, False),
        ("a8w8", (12, 12), 3, False),
    ):
        held = {"w": WEIGHTS}
        model = float_model([node("Conv", "x w", "c", pads=[1] * 4), *silu], {"x": [1, 4, *plane]}, held, ["out"])
        feeds = [{"x": RANDOM.uniform(-2, 3, (1, 4, *plane)).astype(np.float32)}]
        made = adapted(model, feeds, lane, AdaptRequest(lane=lane, optimization=optimization))
        gate, product = (
            next(each for each in made.model.graph.node if each.op_type == kind) for kind in ("Sigmoid", "Mul")
        )
        assert (gate.input[0] != product.input[0]) == apart
