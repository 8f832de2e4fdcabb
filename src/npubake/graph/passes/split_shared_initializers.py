"""Give each weighted operator its own weight and bias: W read by two operators becomes W and W'.

A weight's integer form depends on its reader's input scale (scales[c] = so / (si * D[c])), so two readers need two.
The first reader in order keeps the name. Constants of other operators stay shared.
"""

from __future__ import annotations

import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Outcome
from npubake.graph.weighted import WEIGHTED


def split_shared_initializers(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    taken: set[str] = set()
    first: dict[str, onnx.NodeProto] = {}  # reader of each tensor; it keeps the name, so it stays the first
    for node in editor.nodes:
        for name in node.input:
            first.setdefault(name, node)
    for node in editor.nodes:
        if node.op_type not in (*WEIGHTED, "MatMul"):
            continue
        for slot, name in enumerate(node.input):
            value = editor.constant(name)
            if value is None or (slot == 0 and node.op_type != "MatMul"):
                continue
            if name in taken or first[name] is not node:
                own = editor.add_constant(f"{node.name}/{'bias' if slot == 2 else 'weight'}", value)
                editor.set_inputs(node, [own if index == slot else old for index, old in enumerate(node.input)])
            else:
                taken.add(name)
    return Outcome(model=editor.finish())
