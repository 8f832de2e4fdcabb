"""The baked input equals decode, linear step, quantise: every element, two optimisation levels, 1 and 2 threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import RecipeError
from npubake.fixedpoint.colour import BT601, RuntimeInput
from npubake.fixedpoint.runtime_input import bake_runtime_input, linear_table, quantised_table
from npubake.layout.runtime_input import decode, encode

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
)


def quantising_model(shape: Sequence[int], scale: float, zero_point: NDArray[Any] | np.generic) -> onnx.ModelProto:
    """images -> QuantizeLinear -> q, the form in which lowering leaves a model's edge."""
    zero = np.asarray(zero_point)
    dtype = helper.np_dtype_to_tensor_dtype(zero.dtype)
    graph = helper.make_graph(
        [helper.make_node("QuantizeLinear", ["images", "scale", "zero"], ["q"], name="images/quantize")],
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("q", dtype, list(shape))],
        [numpy_helper.from_array(np.array(scale, dtype=np.float32), "scale"), numpy_helper.from_array(zero, "zero")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run_everywhere(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    onnx.checker.check_model(model, full_check=True)
    results = []
    for level in LEVELS:
        for threads in (1, 2):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = level
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
            results.append(session.run(None, feeds)[0])
    return results


def expected_float(spec: RuntimeInput, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The linear step on whole images, written out here again: float32 [1, C, H, W]."""
    values = pixels.astype(np.float32).transpose(2, 0, 1)[None]
    if spec.divide_by is not None:
        values = values / np.float32(spec.divide_by)
    if spec.mean is not None:
        values = values - np.array(spec.mean, dtype=np.float32).reshape(1, -1, 1, 1)
    if spec.std is not None:
        values = values / np.array(spec.std, dtype=np.float32).reshape(1, -1, 1, 1)
    return values


def quantise_exactly(values: NDArray[np.float32], scale: float, zero_point: int, low: int, high: int) -> NDArray[Any]:
    """Round half to even of the float32 quotient, by Python's own round on exact values."""
    quotients = values / np.float32(scale)
    flat = [min(max(round(float(value)) + zero_point, low), high) for value in quotients.reshape(-1)]
    return np.array(flat).reshape(values.shape)


@pytest.mark.parametrize("kind", ["nv12", "yuv444", "rgb", "bgr"])
@pytest.mark.parametrize("colour_range", ["full", "video"])
@pytest.mark.parametrize("channels", ["rgb", "bgr"])
@pytest.mark.parametrize(("mean", "std"), [(None, None), (MEAN, STD)])
def test_colour_inputs_are_bit_equal(
    kind: Any, colour_range: Any, channels: Any, mean: tuple[float, ...] | None, std: tuple[float, ...] | None
) -> None:
    spec = RuntimeInput(name="images", type=kind, range=colour_range, channels=channels, mean=mean, std=std)
    generator = np.random.default_rng(7)
    shapes = {name: value.shape for name, value in encode(spec, np.zeros((18, 26, 3), dtype=np.uint8)).items()}
    feeds = {name: generator.integers(0, 256, shape, dtype=np.uint8) for name, shape in shapes.items()}
    scale, zero = (0.0173, 118) if mean else (0.0041, 3)
    model, facts = bake_runtime_input(quantising_model((1, 3, 18, 26), scale, np.uint8(zero)), [spec])
    want = quantise_exactly(expected_float(spec, decode(spec, feeds)), scale, zero, 0, 255)
    for got in run_everywhere(model, feeds):
        np.testing.assert_array_equal(got, want)
    assert facts["images"]["tensors"] == list(feeds)
    assert facts["images"]["table"] == "integer"
    read = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= read
    assert [entry.name for entry in model.graph.input] == list(feeds)


def test_every_yuv_triple_decodes_as_exact_arithmetic_says() -> None:
    """All 2**24 triples would take long: every luma with a grid of chroma that holds the extremes."""
    chroma = np.array([0, 1, 15, 16, 63, 127, 128, 129, 200, 239, 240, 254, 255], dtype=np.uint8)
    y, u, v = (axis.reshape(-1) for axis in np.meshgrid(np.arange(256, dtype=np.uint8), chroma, chroma))
    frame = np.stack([y, u, v], axis=-1)[None, :, None, :]
    for colour_range in ("full", "video"):
        spec = RuntimeInput(name="images", type="yuv444", range=colour_range)
        model, _ = bake_runtime_input(quantising_model((1, 3, y.size, 1), 1 / 255, np.uint8(0)), [spec])
        want = np.array([decode_exactly(int(a), int(b), int(c), colour_range) for a, b, c in zip(y, u, v, strict=True)])
        for got in run_everywhere(model, {"images": frame}):
            np.testing.assert_array_equal(got[0, :, :, 0].T, want)


def decode_exactly(y: int, u: int, v: int, colour_range: Any) -> list[int]:
    """Rational arithmetic on the stated integers; round() of a Fraction is half to even."""
    numbers = BT601[colour_range]
    rows = numbers.to_rgb
    sums = [numbers.luma * (y - numbers.offset) + a * (u - 128) + b * (v - 128) for a, b in rows]
    return [min(max(round(Fraction(total, 2**14)), 0), 255) for total in sums]


def test_gray_and_int16_and_nhwc_models() -> None:
    gray = RuntimeInput(name="images", type="gray", channels="gray", mean=(0.1307,), std=(0.3081,))
    image = np.random.default_rng(3).integers(0, 256, (7, 5, 1), dtype=np.uint8)
    model, _ = bake_runtime_input(quantising_model((1, 1, 7, 5), 0.00043, np.int16(0)), [gray])
    want = quantise_exactly(expected_float(gray, image), 0.00043, 0, -32768, 32767)
    for got in run_everywhere(model, encode(gray, image)):
        assert got.dtype == np.int16
        np.testing.assert_array_equal(got, want)
    bgr = RuntimeInput(name="images", type="bgr", mean=MEAN, std=STD)
    colour = np.random.default_rng(4).integers(0, 256, (6, 4, 3), dtype=np.uint8)
    model, _ = bake_runtime_input(quantising_model((1, 6, 4, 3), 0.0173, np.uint8(118)), [bgr])
    want = quantise_exactly(expected_float(bgr, colour), 0.0173, 118, 0, 255).transpose(0, 2, 3, 1)
    for got in run_everywhere(model, encode(bgr, colour)):
        np.testing.assert_array_equal(got, want)


def test_identity_table_is_left_out() -> None:
    spec = RuntimeInput(name="images", type="nv12")
    source = quantising_model((1, 3, 8, 8), 1 / 255, np.uint8(0))
    before = source.SerializeToString(deterministic=True)
    model, facts = bake_runtime_input(source, [spec])
    assert facts["images"]["table"] == "identity"
    assert "GatherElements" not in {node.op_type for node in model.graph.node}
    assert source.SerializeToString(deterministic=True) == before


def test_input_read_in_float_gets_the_linear_step_itself() -> None:
    """A float16 lane reads the input without QuantizeLinear: the lookup holds the step's float32 values."""
    graph = helper.make_graph(
        [helper.make_node("Cast", ["images"], ["half"], to=TensorProto.FLOAT16, name="half")],
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 4, 6])],
        [helper.make_tensor_value_info("half", TensorProto.FLOAT16, [1, 3, 4, 6])],
    )
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    spec = RuntimeInput(name="images", type="nv12", range="video", mean=MEAN, std=STD)
    image = np.random.default_rng(5).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    feeds = encode(spec, image)
    model, facts = bake_runtime_input(source, [spec])
    want = expected_float(spec, decode(spec, feeds)).astype(np.float16)
    assert facts["images"]["table"] == "float"
    for got in run_everywhere(model, feeds):
        np.testing.assert_array_equal(got, want)


def test_sums_stay_exact_in_float32() -> None:
    """Worst case of every partial sum in any order: all positive terms, or all negative ones, the bias among them."""
    for numbers in BT601.values():
        for row in numbers.to_rgb:
            bias = -128 * sum(row) - numbers.offset * numbers.luma
            terms = [255 * numbers.luma, *(255 * factor for factor in row), bias]
            assert sum(term for term in terms if term > 0) < 2**24
            assert -sum(term for term in terms if term < 0) < 2**24


def test_tables_match_rational_arithmetic_within_one_rounding() -> None:
    """float32 steps against exact rationals: the values agree to 3 roundings, the codes wherever no tie is near."""
    spec = RuntimeInput(name="images", type="rgb", mean=MEAN, std=STD)
    values = linear_table(spec, 3)
    codes = quantised_table(values, 0.0173, np.array(118, dtype=np.uint8))
    scale = Fraction(float(np.float32(0.0173)))
    for channel in range(3):
        mean, std = (Fraction(float(np.float32(numbers[channel]))) for numbers in (MEAN, STD))
        for pixel in range(256):
            exact = (Fraction(pixel, 255) - mean) / std
            assert math.isclose(values[channel, pixel], float(exact), rel_tol=1e-5, abs_tol=1e-6)
            step = exact / scale
            if abs(step - math.floor(step) - Fraction(1, 2)) > Fraction(1, 1000):
                assert codes[channel, pixel] == min(max(round(step) + 118, 0), 255)


def test_all_faults_at_once() -> None:
    source = quantising_model((1, 3, 7, 8), 1 / 255, np.uint8(0))
    bad = [
        RuntimeInput(name="images", type="nv12", mean=(0.5,)),
        RuntimeInput(name="image", type="rgb"),
        RuntimeInput(name="images", type="gray"),
    ]
    with pytest.raises(RecipeError) as caught:
        bake_runtime_input(source, bad)
    whats = [fault.what for fault in caught.value.faults]
    assert whats[0] == "nv12 of 7 x 8"
    assert whats[1] == "mean has 1 numbers"
    assert whats[2] == "the model has no such input"
    assert whats[3] == "gray cannot become rgb"
    with pytest.raises(RecipeError):
        RuntimeInput.from_facts("images", {"type": "nv21"})


def test_facts_round_trip() -> None:
    spec = RuntimeInput(name="images", type="nv12", range="video", channels="bgr", divide_by=None, mean=(1.0, 2.0, 3.0))
    assert RuntimeInput.from_facts("images", spec.facts()) == spec
