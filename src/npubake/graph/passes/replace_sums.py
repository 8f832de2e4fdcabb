"""Write sums of several tensors as additions of two, in the order of a sum: Sum(a, b, c) = (a + b) + c."""

from __future__ import annotations

import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Outcome


def replace_sums(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    for node in [node for node in editor.nodes if node.op_type == "Sum" and len(node.input) > 1]:
        total, result, name = node.input[0], node.output[0], node.name
        editor.remove([node])
        terms = list(node.input[1:])
        for term in terms[:-1]:
            partial = editor.fresh(f"{name}/partial")
            editor.add_node("Add", [total, term], [partial], f"{name}/Add")
            total = partial
        last = editor.add_node("Add", [total, terms[-1]], [result], f"{name}/Add")
        last.name = name
    return Outcome(model=editor.finish())
