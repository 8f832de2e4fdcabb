"""Write every Gemm with constant weights in one form: y = x B' + c', alpha = beta = 1, c' one value a column; any other
as MatMul.

alpha * A B + beta * C = A (alpha * B) + (beta * C); C of shape [N], [1, N], [1] or a scalar becomes [N]. A transposed
first operand becomes a Transpose before it. C that differs from row to row becomes an Add behind, and so does one that
is computed. B that is computed makes it alpha * MatMul(A', B') + beta * C, alpha in A where that is constant. Declined:
other types than float32.
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
    if editor.element_type(node.input[0]) != onnx.TensorProto.FLOAT:
        return "it does not multiply float32 tensors"
    weight = editor.constant(node.input[1])
    if weight is None:
        _multiply(editor, node)
        return ""
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
        inputs[0] = _turned(editor, node, node.input[0])
    editor.set_inputs(node, inputs)
    kept = [entry for entry in node.attribute if entry.name == "transB"]
    del node.attribute[:]
    node.attribute.extend(kept)
    return ""


def _multiply(editor: GraphEditor, node: onnx.NodeProto) -> None:
    """Gemm of two computed tensors, or of a constant and a computed one, as MatMul."""
    alpha, beta = np.float64(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
    first, second = node.input[:2]
    constant = editor.constant(first)
    if constant is not None and alpha != 1.0:
        first = editor.add_constant(f"{node.name}/factor", (constant.astype(np.float64) * alpha).astype(np.float32))
    if attribute(node, "transA", 0):
        first = _turned(editor, node, first)
    if attribute(node, "transB", 0):
        second = _turned(editor, node, second)
    if len(node.input) > 2 and node.input[2] and beta != 0.0:
        _add_behind(editor, node, editor.constant(node.input[2]), beta)
    if constant is None and alpha != 1.0:
        result, product = node.output[0], editor.fresh(f"{node.name}/unscaled")
        factor = editor.add_constant(f"{node.name}/alpha", np.array(alpha, np.float32))
        editor.set_output(node, product)
        editor.add_node("Mul", [product, factor], [result], f"{node.name}/Mul")
    editor.set_inputs(node, [first, second])
    node.op_type = "MatMul"
    del node.attribute[:]


def _turned(editor: GraphEditor, node: onnx.NodeProto, tensor: str) -> str:
    """A matrix, transposed in front of ``node``."""
    turned = editor.fresh(f"{node.name}/transposed")
    editor.add_node("Transpose", [tensor], [turned], f"{node.name}/Transpose", perm=[1, 0])
    return turned


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
