"""Replace what is computed from constants alone by its value: f(c1, c2, ...) = c.

Also Shape and Size of a tensor whose sizes are static, and CastLike of a constant to a known type. The arithmetic is
that of ``constant_evaluation`` (no BLAS), so the bytes repeat on every machine. Declined: operators outside its tables,
results above ``MAX_BYTES``, values that the operator does not have (the log of a negative number), graph outputs (an
initialiser as output is not portable).
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from npubake.graph.constant_evaluation import FOLDABLE_OPERATORS, Array, evaluate_node
from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.opset import OPSET, opset_of
from npubake.graph.ordering import sort_nodes
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance

MAX_BYTES = 2**28  # a quarter of a gigabyte: larger constants would not fit one protobuf file with their model


def fold_constants(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    opset = opset_of(model) or OPSET
    gone: list[Provenance] = []
    declined: list[Declined] = []
    folded: list[onnx.NodeProto] = []
    for node in sort_nodes(editor.nodes):
        if set(node.output) & set(editor.outputs):
            continue
        values = _static_size(editor, node) or _static_cast(editor, node)
        if values is None and all(not name or editor.is_constant(name) for name in node.input):
            values = _evaluate(editor, node, opset, declined)
        if values is None:
            continue
        for name, value in zip(node.output, values, strict=True):
            if name:
                editor.set_constant(name, value)
                gone.append(Provenance(old=name, new="", relation="gone"))
        folded.append(node)
    editor.remove(folded)
    return Outcome(model=editor.finish(), provenance=tuple(gone), declined=tuple(declined))


def _static_size(editor: GraphEditor, node: onnx.NodeProto) -> list[Array] | None:
    if node.op_type not in ("Shape", "Size"):
        return None
    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return [np.array(math.prod(shape), dtype=np.int64)]
    start, end = attribute(node, "start", 0), attribute(node, "end", len(shape))
    return [np.array(shape[start:end], dtype=np.int64)]


def _static_cast(editor: GraphEditor, node: onnx.NodeProto) -> list[Array] | None:
    if node.op_type != "CastLike" or editor.is_constant(node.input[1]):
        return None
    value, kind = editor.constant(node.input[0]), editor.element_type(node.input[1])
    return [value.astype(np.float32)] if value is not None and kind == onnx.TensorProto.FLOAT else None


def _evaluate(editor: GraphEditor, node: onnx.NodeProto, opset: int, declined: list[Declined]) -> list[Array] | None:
    if node.op_type not in FOLDABLE_OPERATORS:
        declined.append(Declined(node=node.name, why=f"no portable arithmetic for a constant {node.op_type}"))
        return None
    sizes = [editor.shape(name) for name in node.output if name]
    if any(size is not None and 4 * math.prod(size) > MAX_BYTES for size in sizes):
        declined.append(Declined(node=node.name, why=f"its value would take more than {MAX_BYTES} bytes"))
        return None
    try:
        values = evaluate_node(node, [editor.constant(name) for name in node.input], opset)
    except (ValueError, OverflowError, ZeroDivisionError, IndexError, RuntimeError) as error:
        declined.append(Declined(node=node.name, why=f"it has no value here ({error})"))
        return None
    if values is None:
        declined.append(Declined(node=node.name, why=f"no portable arithmetic for this constant {node.op_type}"))
    return values
