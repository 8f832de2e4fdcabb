"""quant: scales, zero points and rounding, against onnxruntime and exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.quant.affine import tensor_parameters
from npubake.quant.parameters import IntegerType, TensorParameters
from npubake.quant.ranges import Range
from tests.quant.quantize_linear import dequantize, fake_quantize, quantize

ENDS = st.floats(min_value=2.0**-30, max_value=2.0**30, width=32)
CASES = [
    (Range(low=0.0, high=6.0), "uint8", True),
    (Range(low=-1.75, high=3.5), "uint8", True),
    (Range(low=-2.5, high=0.0), "uint8", True),
    (Range(low=-1.0, high=3.0), "uint8", False),
    (Range(low=-1.0, high=3.0), "int16", True),
    (Range(low=-1e-9, high=3e-9), "uint8", True),
]  # fmt: skip


def in_onnxruntime(values: NDArray[np.float32], entry: TensorParameters) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Codes and values from onnxruntime's own QuantizeLinear and DequantizeLinear."""
    constants = [
        numpy_helper.from_array(np.array(entry.scale, np.float32), "scale"),
        numpy_helper.from_array(np.array(entry.zero_point, entry.dtype), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(entry.dtype))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [values.size])],
        [helper.make_tensor_value_info("q", code, [values.size]),
         helper.make_tensor_value_info("y", TensorProto.FLOAT, [values.size])],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    codes, result = session.run(None, {"x": values})
    return codes, result


@pytest.mark.parametrize(("span", "dtype", "asymmetric"), CASES)
def test_rounding_is_that_of_quantizelinear(span: Range, dtype: IntegerType, asymmetric: bool) -> None:
    entry = tensor_parameters(span, dtype, asymmetric=asymmetric)
    random = np.random.default_rng(3).uniform(1.3 * span.low - span.absmax / 9, 1.3 * span.high, 4000)
    ties = (np.arange(-300, 300) + 0.5) * entry.scale
    values = np.concatenate([random, ties, [0.0, -0.0, span.low, span.high]]).astype(np.float32)
    codes, result = in_onnxruntime(values, entry)
    np.testing.assert_array_equal(quantize(values, entry), codes)
    np.testing.assert_array_equal(fake_quantize(values, entry), result)
    assert quantize(values, entry).dtype == np.dtype(dtype)


@given(ENDS, ENDS, st.booleans())
def test_zero_has_a_code_and_every_value_inside_is_within_one_step(low: float, high: float, asymmetric: bool) -> None:
    """Within half a step in the middle; at an end the rounded zero point may take another half (exact arithmetic)."""
    span = Range(low=-low, high=high)
    entry = tensor_parameters(span, "uint8", asymmetric=asymmetric)
    assert 0 <= entry.zero_point <= 255
    assert fake_quantize(np.zeros(1, np.float32), entry)[0] == 0.0
    step = Fraction(entry.scale)
    reach_low, reach_high = -entry.zero_point * step, (255 - entry.zero_point) * step
    assert reach_low <= Fraction(-low) + step * Fraction(51, 100)
    assert reach_high >= Fraction(high) - step * Fraction(51, 100)


@given(ENDS)
def test_scales_are_the_nearest_float32_of_the_exact_quotient(high: float) -> None:
    span = Range(low=0.0, high=high)
    for dtype, asymmetric, steps in (("uint8", True, 255), ("uint8", False, 127), ("int16", True, 32767)):
        entry = tensor_parameters(span, dtype, asymmetric=asymmetric)  # type: ignore[arg-type]
        exact = Fraction(high) / steps
        assert np.float32(entry.scale) == entry.scale
        below, above = (float(np.nextafter(np.float32(entry.scale), np.float32(end))) for end in (0, np.inf))
        error = abs(Fraction(entry.scale) - exact)
        assert error <= min(abs(Fraction(below) - exact), abs(Fraction(above) - exact))


def test_pictures_in_zero_to_one_keep_their_bytes() -> None:
    entry = tensor_parameters(Range(low=0.0, high=1.0), "uint8", asymmetric=True)
    assert entry.scale == float(np.float32(1) / np.float32(255))
    assert entry.zero_point == 0
    pixels = np.arange(256, dtype=np.float32) / np.float32(255)
    np.testing.assert_array_equal(quantize(pixels, entry), np.arange(256))
    assert dequantize(np.array([255], np.uint8), entry)[0] == 1.0


def test_symmetric_forms() -> None:
    entry = tensor_parameters(Range(low=-1.0, high=0.5), "uint8", asymmetric=False)
    assert (entry.zero_point, entry.low, entry.high) == (128, -1.0, 1.0)
    np.testing.assert_array_equal(quantize(np.array([-1, 0, 1], np.float32), entry), [1, 128, 255])
    wide = tensor_parameters(Range(low=-1.0, high=0.5), "int16", asymmetric=True)
    assert (wide.zero_point, wide.low, wide.high) == (0, -1.0, 1.0)
    np.testing.assert_array_equal(quantize(np.array([-1, 0, 1], np.float32), wide), [-32767, 0, 32767])


@pytest.mark.parametrize("span", [Range(low=0.0, high=0.0), Range(low=-(2.0**-149), high=2.0**-140)])
def test_a_dead_range_takes_zero_to_one(span: Range) -> None:
    entry = tensor_parameters(span, "uint8", asymmetric=True)
    assert (entry.low, entry.high, entry.zero_point) == (0.0, 1.0, 0)
    assert entry.scale == float(np.float32(1 / 255))


def test_the_widest_range_still_has_a_finite_scale() -> None:
    entry = tensor_parameters(Range(low=-(2.0**128), high=2.0**128), "uint8", asymmetric=True)
    assert np.isfinite(np.float32(entry.scale))


def test_only_uint8_and_int16_hold_activations() -> None:
    with pytest.raises(ValueError, match="uint8 or int16"):
        tensor_parameters(Range(low=0, high=1), "int8", asymmetric=True)
