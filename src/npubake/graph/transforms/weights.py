"""Room ``graph/transforms``: weights by input and output channel. Arrays and one node at a time.

Products are taken in float64 and rounded once to float32: exact for powers of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.editing import attribute

Array = NDArray[Any]
Values = NDArray[np.float64]


def scale_weight(node: onnx.NodeProto, weight: Array, rows: Values | None, columns: Values | None) -> Values:
    """``weight`` of a Conv, ConvTranspose, Gemm or MatMul times one factor for each output (rows) and input channel."""
    blocks = _blocks(node, np.asarray(weight, np.float64))
    groups, outputs, inputs = blocks.shape[:3]
    trailing = (1,) * (blocks.ndim - 3)
    if rows is not None:
        blocks = blocks * rows.reshape(groups, outputs, 1, *trailing)
    if columns is not None:
        blocks = blocks * columns.reshape(groups, 1, inputs, *trailing)
    return _unblocked(node, blocks, weight.shape)


def row_ranges(node: onnx.NodeProto, weight: Array) -> Values:
    """Largest magnitude of each output channel's weights, float64."""
    blocks = np.abs(_blocks(node, np.asarray(weight, np.float64)))
    return np.asarray(blocks.reshape(*blocks.shape[:2], -1).max(axis=2).reshape(-1))


def column_ranges(node: onnx.NodeProto, weight: Array) -> Values | None:
    """Largest magnitude of each input channel's weights, each relative to the largest that shares its scale; None for a
    depthwise Conv, where only one input channel does.
    """
    blocks = np.abs(_blocks(node, np.asarray(weight, np.float64)))
    if node.op_type == "Conv" and blocks.shape[2] == 1:
        return None
    flat = blocks.reshape(*blocks.shape[:3], -1).max(axis=3)
    largest = flat.max(axis=2, keepdims=True)
    if node.op_type == "ConvTranspose":  # one scale serves a channel of every group
        largest = largest.max(axis=0, keepdims=True)
    return np.asarray((flat / np.where(largest > 0.0, largest, 1.0)).max(axis=1).reshape(-1))


def row_maxima(node: onnx.NodeProto, weight: Array, columns: Values) -> Values:
    """Largest magnitude of each output channel's weights after a factor for each input channel: [groups, outputs]."""
    blocks = np.abs(_blocks(node, np.asarray(weight, np.float64)))
    flat = blocks.reshape(*blocks.shape[:3], -1).max(axis=3)
    return np.asarray((flat * columns.reshape(len(blocks), 1, -1)).max(axis=2))


def column_energies(node: onnx.NodeProto, weight: Array) -> Values:
    """Sum of squares of each input channel's weights, float64."""
    blocks = _blocks(node, np.asarray(weight, np.float64))
    squares = (blocks * blocks).reshape(*blocks.shape[:3], -1)
    return np.asarray(np.add.reduce(np.add.reduce(squares, axis=3), axis=1).reshape(-1))


def bias_shift(node: onnx.NodeProto, weight: Array, shift: Values) -> Values:
    """What each output gains where every input of channel j gains ``shift[j]``, at each position: float64 [outputs]."""
    blocks = _blocks(node, np.asarray(weight, np.float64))
    taps = blocks.reshape(*blocks.shape[:3], -1)
    products = taps * shift.reshape(blocks.shape[0], 1, blocks.shape[2], 1)
    return np.asarray(np.add.reduce(products.reshape(*blocks.shape[:2], -1), axis=2).reshape(-1))


def _blocks(node: onnx.NodeProto, weight: Values) -> Values:
    """[groups, outputs, inputs, *kernel], a view where that is possible."""
    if node.op_type == "Conv":
        groups = int(attribute(node, "group", 1))
        return weight.reshape(groups, -1, *weight.shape[1:])
    if node.op_type == "ConvTranspose":
        groups = int(attribute(node, "group", 1))
        return weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    turned = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
    return np.asarray((weight if turned else weight.T)[None])


def _unblocked(node: onnx.NodeProto, blocks: Values, shape: tuple[int, ...]) -> Values:
    """The inverse of ``_blocks``."""
    if node.op_type == "ConvTranspose":
        return np.asarray(blocks.swapaxes(1, 2).reshape(shape))
    if node.op_type == "Conv":
        return np.asarray(blocks.reshape(shape))
    turned = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
    return np.asarray(blocks[0] if turned else blocks[0].T)
