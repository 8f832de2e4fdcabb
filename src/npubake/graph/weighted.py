"""Room ``graph``: per-channel algebra on the weights of Conv, ConvTranspose and Gemm. Arrays and one node at a time.

With y = W x + b, an affine map s * y + t on the output channels is the same operator with W' = s * W, b' = s * b + t.
Computed in float64, element by element (each step correctly rounded, so the bits repeat), rounded once to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.editing import GraphEditor, attribute

Array = NDArray[Any]
WEIGHTED = ("Conv", "ConvTranspose", "Gemm")


def has_constant_weights(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    """True for a Conv, ConvTranspose or Gemm whose weight and bias (if any) are float32 initialisers."""
    if node.op_type not in WEIGHTED or len(node.input) < 2:
        return False
    constants = [name for name in node.input[1:] if name]
    return all(
        editor.is_constant(name) and editor.element_type(name) == onnx.TensorProto.FLOAT for name in constants
    ) and (node.op_type != "Gemm" or is_plain_gemm(node))


def is_plain_gemm(node: onnx.NodeProto) -> bool:
    """alpha = beta = 1 and the first operand as it is."""
    factors = (attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0))
    return factors == (1.0, 1.0) and not attribute(node, "transA", 0)


def output_channels(editor: GraphEditor, node: onnx.NodeProto) -> int:
    shape = editor.shape(node.input[1])
    if shape is None:
        raise ValueError(f"{node.name}: the weight's shape is not known")
    if node.op_type == "Conv":
        return shape[0]
    if node.op_type == "ConvTranspose":
        return shape[1] * int(attribute(node, "group", 1))
    return shape[0] if attribute(node, "transB", 0) else shape[1]


def scale_channels(node: onnx.NodeProto, weight: Array, scale: Array) -> Array:
    """``weight`` (any float dtype) times ``scale`` (one value for each output channel), in float64."""
    wide = weight.astype(np.float64)
    if node.op_type == "Gemm":
        return wide * (scale[:, None] if attribute(node, "transB", 0) else scale[None, :])
    trailing = (1,) * (weight.ndim - 2)
    if node.op_type == "Conv":
        return wide * scale.reshape(-1, 1, *trailing)
    groups = int(attribute(node, "group", 1))
    blocks = wide.reshape(groups, -1, *weight.shape[1:])
    return (blocks * scale.reshape(groups, 1, -1, *trailing)).reshape(weight.shape)


def apply_affine(editor: GraphEditor, node: onnx.NodeProto, scale: Array, shift: Array) -> bool:
    """Let ``node`` compute scale * y + shift instead of y (float64 arrays, one value for each output channel).

    False, and nothing is changed, where a new weight or bias would not be finite in float32.
    """
    weight = editor.constant(node.input[1])
    if weight is None:
        raise ValueError(f"{node.name}: the weight is no constant")
    bias = editor.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    old_bias = np.zeros(len(scale)) if bias is None else bias.astype(np.float64).reshape(-1)
    with np.errstate(over="ignore"):
        new_weight = scale_channels(node, weight, scale).astype(np.float32)
        new_bias = (old_bias * scale + shift).astype(np.float32)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return False
    names = [
        editor.add_constant(f"{node.name}/weight", new_weight),
        editor.add_constant(f"{node.name}/bias", new_bias),
    ]
    editor.set_inputs(node, [node.input[0], *names])
    return True


def channel_values(value: Array | None, channels: int, channel_axis: int, rank: int) -> Array | None:
    """``value`` as one float64 for each channel of a tensor of ``rank`` dimensions; None where it varies otherwise."""
    if value is None or value.dtype != np.float32 or value.ndim > rank:
        return None
    if value.size == 1:
        return np.full(channels, float(value.reshape(-1)[0]))
    shape = (1,) * (rank - value.ndim) + value.shape
    wanted = tuple(channels if axis == channel_axis else 1 for axis in range(rank))
    return value.astype(np.float64).reshape(-1) if shape == wanted else None
