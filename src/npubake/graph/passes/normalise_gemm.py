"""Write every Gemm with constant weights in one form: y = x B' + c', alpha = beta = 1, c' one value a column.

alpha * A B + beta * C = A (alpha * B) + (beta * C); C of shape [N], [1, N], [1] or a scalar becomes [N]. A transposed
first operand becomes a Transpose before it. C that differs from row to row becomes an Add behind, and so does one that
is computed. Declined: B that is computed.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.weighted import Array, is_plain_gemm, output_channels


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
    if weight is None or weight.dtype != np.float32:
        return "its second operand is computed, or not float32"
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = editor.constant(node.input[2]) if has_bias else None
    columns = output_channels(editor, node)
    if is_plain_gemm(node) and (not has_bias or (bias is not None and bias.shape == (columns,))):
        return ""
    alpha, beta = np.float64(attribute(node, "alpha", 1.0)), np.float64(attribute(node, "beta", 1.0))
    inputs = [node.input[0], node.input[1]]
    if alpha != 1.0:
        inputs[1] = editor.add_constant(f"{node.name}/weight", (weight.astype(np.float64) * alpha).astype(np.float32))
    if bias is not None and bias.size in (1, columns) and (bias.ndim < 2 or bias.shape[0] == 1):
        row = np.broadcast_to(bias.astype(np.float64).reshape(-1) * beta, (columns,))
        inputs.append(editor.add_constant(f"{node.name}/bias", row.astype(np.float32)))
    elif has_bias and beta != 0.0:
        _add_behind(editor, node, bias, float(beta))
    if attribute(node, "transA", 0):
        turned = editor.fresh(f"{node.name}/transposed")
        editor.add_node("Transpose", [node.input[0]], [turned], f"{node.name}/Transpose", perm=[1, 0])
        inputs[0] = turned
    editor.set_inputs(node, inputs)
    kept = [entry for entry in node.attribute if entry.name == "transB"]
    del node.attribute[:]
    node.attribute.extend(kept)
    return ""


def _add_behind(editor: GraphEditor, node: onnx.NodeProto, bias: Array | None, beta: float) -> None:
    """y = product + beta * C, the Add under the output's old name."""
    result, addend = node.output[0], node.input[2]
    if bias is not None:
        addend = editor.add_constant(f"{node.name}/addend", (bias.astype(np.float64) * beta).astype(np.float32))
    elif beta != 1.0:
        factor = editor.add_constant(f"{node.name}/beta", np.array(beta, np.float32))
        scaled = editor.fresh(f"{node.name}/scaled")
        editor.add_node("Mul", [addend, factor], [scaled], f"{node.name}/Mul")
        addend = scaled
    product = editor.fresh(f"{node.name}/product")
    editor.set_output(node, product)
    editor.add_node("Add", [product, addend], [result], f"{node.name}/Add")
