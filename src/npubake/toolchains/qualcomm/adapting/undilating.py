"""Qualcomm toolchain: dilated convolutions by weights of 16 bits, as the HTP computes them exactly. numpy; onnx nodes.

Such a convolution loses what is below the upper bits of every product, without a word (QNN 2.51.0, HTP v73 and later:
30 dB beside the QDQ model, where one without dilation has 61 dB, and 8-bit weights 80 dB). With zeros between the
weights it is no dilated one, and right. A depthwise one is right as it is. (tests/qualcomm/test_operators.py)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from npubake.graph.editing import attribute
from npubake.toolchains.qualcomm.adapting.operations import EncodedWeights

_DEPTHWISE = 1  # input channels of each output channel


def loses_bits(node: onnx.NodeProto, weights: EncodedWeights) -> bool:
    """Whether the HTP computes a layer so."""
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
    node.attribute.extend([*kept, onnx.helper.make_attribute("kernel_shape", sides)])
    return replace(weights, codes=dense)
