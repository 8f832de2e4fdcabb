"""ONNX's QuantizeLinear and DequantizeLinear in numpy, for expected values; test_affine holds them to onnxruntime's.

The float32 quotient x / scale is rounded half to even, the zero point added, the sum saturated to the type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.parameters import TensorParameters


def quantize(values: NDArray[np.float32], parameters: TensorParameters) -> NDArray[Any]:
    """Codes of ``values`` (any shape, float32) in the parameters' dtype."""
    limits = np.iinfo(parameters.dtype)
    codes = np.rint(values.astype(np.float32) / np.float32(parameters.scale)) + np.float32(parameters.zero_point)
    return np.asarray(np.clip(codes, limits.min, limits.max).astype(parameters.dtype))


def dequantize(codes: NDArray[Any], parameters: TensorParameters) -> NDArray[np.float32]:
    """float32 values of ``codes``: one float32 product of exact integers."""
    centred = (codes.astype(np.int32) - np.int32(parameters.zero_point)).astype(np.float32)
    return centred * np.float32(parameters.scale)


def fake_quantize(values: NDArray[np.float32], parameters: TensorParameters) -> NDArray[np.float32]:
    """What is left of ``values`` after a trip through the integers."""
    return dequantize(quantize(values, parameters), parameters)
