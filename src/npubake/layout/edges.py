"""Layout room: the application's part, once nodes were removed at the model's edges. Arrays and removal records only.

``to_edge`` does to an input what the removed nodes did; ``from_edge`` does to an output what they would have done:
q = sat(rint(x / scale) + zero_point) in float32, half to even, and y = float32(q - zero_point) * scale, as ONNX's
QuantizeLinear and DequantizeLinear define them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Removed = Sequence[Mapping[str, Any]]  # ``RemovedNode.to_json()``, from the edge inwards


def to_edge(array: Array, removed: Removed) -> Array:
    """An input in the form it had before the removals -> the form that the model takes now."""
    for node in removed:
        if node["op_type"] == "QuantizeLinear":
            array = _quantise(array, node["affine"], node["dtype"])
        elif node["op_type"] == "Transpose":
            array = array.transpose(node["attributes"]["perm"])
        elif node["op_type"] == "Softmax":
            array = _softmax(array, node["attributes"].get("axis", -1))
        elif node["op_type"] == "DequantizeLinear":
            array = _dequantise(array, node["affine"])
        else:  # Cast, Reshape
            array = array.astype(node["dtype"]).reshape(node["shape"])
    return np.asarray(array, order="C")  # ascontiguousarray would give a scalar an axis


def from_edge(array: Array, removed: Removed) -> Array:
    """An output as the model gives it now -> what it was before the removals."""
    for node in reversed(removed):
        if node["op_type"] == "DequantizeLinear":
            array = _dequantise(array, node["affine"])
        elif node["op_type"] == "Transpose":
            array = array.transpose(node["attributes"]["perm"])
        elif node["op_type"] == "Softmax":
            array = _softmax(array, node["attributes"].get("axis", -1))
        elif node["op_type"] == "QuantizeLinear":
            array = _quantise(array, node["affine"], node["before_dtype"])
        else:
            array = array.astype(node["before_dtype"]).reshape(node["before_shape"])
    return np.asarray(array, order="C")  # ascontiguousarray would give a scalar an axis


def _along(affine: Mapping[str, Any], ndim: int) -> NDArray[np.float32]:
    """The scale, shaped to broadcast along its axis."""
    scale = np.asarray(affine["scale"], dtype=np.float32)
    if scale.size == 1:
        return scale.reshape(())
    return scale.reshape([-1 if axis == affine["axis"] else 1 for axis in range(ndim)])


def _quantise(array: Array, affine: Mapping[str, Any], dtype: str) -> Array:
    limits = np.iinfo(dtype)
    steps = np.rint(array.astype(np.float32) / _along(affine, array.ndim)).astype(np.float64) + affine["zero_point"]
    codes: Array = np.clip(steps, limits.min, limits.max).astype(dtype)
    return codes


def _dequantise(array: Array, affine: Mapping[str, Any]) -> Array:
    centred = (array.astype(np.int64) - affine["zero_point"]).astype(np.float32)
    values: Array = centred * _along(affine, array.ndim)
    return values


def _softmax(array: Array, axis: int) -> Array:
    exponent = np.exp((array - array.max(axis=axis, keepdims=True)).astype(np.float64))
    shares: Array = (exponent / exponent.sum(axis=axis, keepdims=True)).astype(np.float32)
    return shares
