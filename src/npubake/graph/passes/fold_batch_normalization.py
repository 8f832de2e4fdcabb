"""Fold BatchNormalization into the operator before it.

y = gamma * (W x + b - mu) / sqrt(var + eps) + beta = (s * W) x + s * b + t, with s = gamma / sqrt(var + eps) and
t = beta - s * mu, for Conv, ConvTranspose and Gemm. Computed in float64, rounded once to float32.
Declined: the operator's output is read elsewhere or leaves the graph; statistics that are not constant; weights that
would leave float32's range.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance
from npubake.graph.weighted import Array, apply_affine, has_constant_weights


def fold_batch_normalization(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type == "BatchNormalization"]:
        maker = editor.producer(node.input[0])
        if maker is None or not has_constant_weights(editor, maker):
            continue
        reason = _fold(editor, maker, node)
        if reason:
            declined.append(Declined(node=node.name, why=reason))
        else:
            records.append(Provenance(old=node.input[0], new="", relation="gone"))
    return Outcome(model=editor.finish(), provenance=tuple(records), declined=tuple(declined))


def affine_of(editor: GraphEditor, node: onnx.NodeProto) -> tuple[Array, Array] | None:
    """(s, t), float64, one value for each channel, of an inference BatchNormalization; None if it is not constant."""
    values = [editor.constant(name) for name in node.input[1:5]]
    if any(value is None for value in values):
        return None
    gamma, beta, mean, variance = (np.asarray(value, dtype=np.float64) for value in values)
    scale = gamma / np.sqrt(variance + np.float64(attribute(node, "epsilon", 1e-5)))
    return scale, beta - scale * mean


def _fold(editor: GraphEditor, maker: onnx.NodeProto, node: onnx.NodeProto) -> str:
    """Why not, or '' when done."""
    middle = node.input[0]
    if editor.only_reader(middle) is None:
        return f"{middle!r} is read elsewhere too"
    affine = affine_of(editor, node)
    if affine is None:
        return "its scale, bias, mean or variance is no constant"
    if not apply_affine(editor, maker, *affine):
        return "the folded weights would leave the range of float32"
    result = node.output[0]
    editor.remove([node])
    editor.set_output(maker, result)
    return ""
