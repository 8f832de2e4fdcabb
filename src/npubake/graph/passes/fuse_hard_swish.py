"""Write x * HardSigmoid(x) as the operator HardSwish (opset 14).

hardswish(x) = x * max(0, min(1, x / 6 + 1/2)); also spelt x * clip(x + 3, 0, 6) / 6, the division before or after the
product, as Div by 6 or Mul by 1/6. Declined: other slopes, inner tensors read elsewhere.
"""

from __future__ import annotations

import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance

_CLOSE = 1e-4


def fuse_hard_swish(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for root in [node for node in editor.nodes if node.op_type in ("HardSigmoid", "Clip")]:
        spelling = _hard_sigmoid(editor, root) if root.op_type == "HardSigmoid" else _clipped(editor, root)
        if spelling is None:
            continue
        source, nodes = spelling
        result = nodes[-1].output[0]
        inner = [node.output[0] for node in nodes[:-1]]
        if any(editor.only_reader(name) is None for name in inner):
            declined.append(Declined(node=root.name, why="a tensor between its nodes is read elsewhere too"))
            continue
        editor.remove(nodes)
        editor.add_node("HardSwish", [source], [result], f"{root.name}/HardSwish")
        records.extend(Provenance(old=name, new="", relation="gone") for name in inner)
    return Outcome(model=editor.finish(), provenance=tuple(records), declined=tuple(declined))


def _hard_sigmoid(editor: GraphEditor, root: onnx.NodeProto) -> tuple[str, list[onnx.NodeProto]] | None:
    slopes = _near(attribute(root, "alpha", 0.2), 1.0 / 6.0) and _near(attribute(root, "beta", 0.5), 0.5)
    product = _product_with(editor, root.output[0], root.input[0])
    return (root.input[0], [root, product]) if slopes and product is not None else None


def _clipped(editor: GraphEditor, root: onnx.NodeProto) -> tuple[str, list[onnx.NodeProto]] | None:
    """clip(x + 3, 0, 6) and what follows it."""
    bounds = [editor.scalar(name) if name else None for name in root.input[1:3]]
    plus = editor.producer(root.input[0])
    if bounds != [0.0, 6.0] or plus is None or plus.op_type != "Add":
        return None
    if editor.scalar(plus.input[1]) == 3.0:
        source = plus.input[0]
    elif editor.scalar(plus.input[0]) == 3.0:
        source = plus.input[1]
    else:
        return None
    nodes = [plus, root]
    for steps in ((_sixth, _times), (_times, _sixth)):
        first = steps[0](editor, root.output[0], source)
        second = steps[1](editor, first.output[0], source) if first is not None else None
        if first is not None and second is not None:
            return source, [*nodes, first, second]
    return None


def _times(editor: GraphEditor, tensor: str, source: str) -> onnx.NodeProto | None:
    return _product_with(editor, tensor, source)


def _sixth(editor: GraphEditor, tensor: str, source: str) -> onnx.NodeProto | None:
    """The reader that divides ``tensor`` by 6."""
    node = editor.only_reader(tensor)
    if node is None or source in node.input:
        return None
    if node.op_type == "Div" and node.input[0] == tensor:
        return node if editor.scalar(node.input[1]) == 6.0 else None
    if node.op_type == "Mul":
        value = editor.scalar(node.input[1] if node.input[0] == tensor else node.input[0])
        return node if value is not None and _near(value, 1.0 / 6.0) else None
    return None


def _product_with(editor: GraphEditor, tensor: str, source: str) -> onnx.NodeProto | None:
    node = next((reader for reader in editor.readers(tensor) if reader.op_type == "Mul"), None)
    return node if node is not None and set(node.input) == {tensor, source} else None


def _near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= _CLOSE * wanted
