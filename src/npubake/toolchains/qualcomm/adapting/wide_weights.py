"""Qualcomm toolchain: convolutions by weights of 16 bits, where the HTP computes all of their bits. numpy; onnx nodes.

Where a window reaches over more than 8 rows or columns, or is dilated, the compiler takes such a layer and drops the
lower bits of every product, without a word (QNN 2.51.0, HTP v73 and v75): 20 to 35 dB beside the QDQ model, where
others have 60, and weights of 8 bits 80. A transposed one has a window of kernel / stride. With zeros between its
weights a dilated one is none, and right; beyond 8 rows it is refused. (tests/qualcomm/test_wide_weights.py)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.graph.editing import attribute
from npubake.toolchains.qualcomm.adapting.operations import EncodedWeights

_MOST = 8  # rows or columns of a window; 8 x 8: 67 dB, 1 x 9: 30 dB
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_DEPTHWISE = 1  # input channels of each output channel; such a layer may be dilated


def refuse_lost_bits(node: onnx.NodeProto, weights: EncodedWeights) -> None:
    """Raises StageError for a layer whose window is too large. node: with its kernel's dilation, where it has one."""
    if node.op_type not in _CONVOLUTIONS or weights.dtype != "int16":
        return
    window = weights.codes.shape[2:]
    steps = attribute(node, "dilations", [1] * len(window))
    sides = [(count - 1) * step + 1 for count, step in zip(window, steps, strict=True)]
    if node.op_type == "ConvTranspose":
        strides = attribute(node, "strides", [1] * len(window))
        sides = [-(-side // stride) for side, stride in zip(sides, strides, strict=True)]
    if max(sides, default=1) > _MOST:
        reach = " x ".join(str(side) for side in sides)
        what = (
            f"by weights of 16 bits the HTP loses the lower bits of a window of {reach}: it takes up to {_MOST} a side"
        )
        hint = "set weights: int8 for this layer (layer_overrides), which is more exact there"
        raise StageError(Fault(what=what, where=node.name, hint=hint))


def is_dilated(node: onnx.NodeProto, weights: EncodedWeights) -> bool:
    """Whether the HTP loses bits by the dilation alone."""
    wide = node.op_type == "Conv" and weights.dtype == "int16" and weights.codes.shape[1] != _DEPTHWISE
    return wide and max(attribute(node, "dilations", [1])) > 1


def spread(node: onnx.NodeProto, weights: EncodedWeights) -> EncodedWeights:
    """Weights [outputs, inputs, *kernel] with the node's dilation as zeros between them: a side of k has
    (k - 1) * dilation + 1. ``node`` loses its dilation.
    """
    dilations = [int(step) for step in attribute(node, "dilations", [1])]
    channels, window = weights.codes.shape[:2], weights.codes.shape[2:]
    sides = [(count - 1) * step + 1 for count, step in zip(window, dilations, strict=True)]
    dense = np.full((*channels, *sides), weights.zero_point, weights.codes.dtype)
    dense[(slice(None), slice(None), *(slice(None, None, step) for step in dilations))] = weights.codes
    kept = [entry for entry in node.attribute if entry.name not in ("dilations", "kernel_shape")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("kernel_shape", sides)])
    return replace(weights, codes=dense)
