"""Write every Gemm with constant weights in one form: y = x B' + c', alpha = beta = 1, c' one value a column.

alpha * A B + beta * C = A (alpha * B) + (beta * C); C of shape [N], [1, N], [1] or a scalar becomes [N]. A transposed
first operand becomes a Transpose before it. Declined: C that differs from row to row; B or C that is computed.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.weighted import is_plain_gemm, output_channels


def normalise_gemm(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type == "Gemm"]:
        reason = _normalise(editor, node)
        if reason:
            declined.append(Declined(node=node.name, why=reason))
    return Outcome(model=editor.finish(), declined=tuple(declined))


def _normalise(editor: GraphEditor, node: onnx.NodeProto) -> str:
    """Why not, or '' when the node has the form."""
    weight = editor.constant(node.input[1])
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = editor.constant(node.input[2]) if has_bias else None
    if weight is None or weight.dtype != np.float32 or (has_bias and bias is None):
        return "its second or third operand is computed, or not float32"
    columns = output_channels(editor, node)
    if bias is not None and (bias.size not in (1, columns) or (bias.ndim == 2 and bias.shape[0] != 1)):
        return "its bias differs from row to row"
    if is_plain_gemm(node) and (bias is None or bias.shape == (columns,)):
        return ""
    alpha, beta = np.float64(attribute(node, "alpha", 1.0)), np.float64(attribute(node, "beta", 1.0))
    inputs = [node.input[0], node.input[1]]
    if alpha != 1.0:
        inputs[1] = editor.add_constant(f"{node.name}/weight", (weight.astype(np.float64) * alpha).astype(np.float32))
    if bias is not None:
        row = np.broadcast_to(bias.astype(np.float64).reshape(-1) * beta, (columns,))
        inputs.append(editor.add_constant(f"{node.name}/bias", row.astype(np.float32)))
    if attribute(node, "transA", 0):
        turned = editor.fresh(f"{node.name}/transposed")
        editor.add_node("Transpose", [node.input[0]], [turned], f"{node.name}/Transpose", perm=[1, 0])
        inputs[0] = turned
    editor.set_inputs(node, inputs)
    kept = [entry for entry in node.attribute if entry.name == "transB"]
    del node.attribute[:]
    node.attribute.extend(kept)
    return ""
