"""Write GELU spelt with Erf as the operator Gelu (opset 20).

gelu(x) = 0.5 * x * (1 + erf(x / sqrt(2))), the product taken in any order, the division as Div or as Mul. The constants
are recognised within 1e-3 of themselves, since exporters round sqrt(2) to 4 to 7 digits.
Declined: a factor that is another constant, inner tensors read elsewhere.
"""

from __future__ import annotations

import math

import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance

_CLOSE = 1e-3


def fuse_gelu(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for erf in [node for node in editor.nodes if node.op_type == "Erf"]:
        found = _match(editor, erf)
        if found is None:
            declined.append(Declined(node=erf.name, why="its neighbours do not spell GELU, or others read them"))
            continue
        source, nodes, result = found
        inner = [node.output[0] for node in nodes if node.output[0] != result]
        editor.remove(nodes)
        editor.add_node("Gelu", [source], [result], f"{erf.name}/Gelu")
        records.extend(Provenance(old=name, new="", relation="gone") for name in inner)
    return Outcome(model=editor.finish(), provenance=tuple(records), declined=tuple(declined))


def _match(editor: GraphEditor, erf: onnx.NodeProto) -> tuple[str, list[onnx.NodeProto], str] | None:
    """(x, the nodes that go, the name of the result)."""
    scaled = editor.producer(erf.input[0])
    if scaled is None or editor.only_reader(scaled.output[0]) is not erf:
        return None
    source = _divided_by_root_two(editor, scaled)
    plus = editor.only_reader(erf.output[0])
    if source is None or plus is None or plus.op_type != "Add" or _other_scalar(editor, plus, erf.output[0]) != 1.0:
        return None
    nodes = [scaled, erf, plus]
    current, half, has_source = plus.output[0], False, False
    while not (half and has_source):
        node = editor.only_reader(current)
        if node is None or node.op_type != "Mul":
            return None
        other = node.input[1] if node.input[0] == current else node.input[0]
        halved = editor.producer(other)
        if not half and _near(editor.scalar(other), 0.5):
            half = True
        elif not has_source and other == source:
            has_source = True
        elif not half and not has_source and halved is not None and _is_half_of(editor, halved, source):
            half = has_source = True
            nodes.append(halved)
        else:
            return None
        nodes.append(node)
        current = node.output[0]
    return source, nodes, current


def _divided_by_root_two(editor: GraphEditor, node: onnx.NodeProto) -> str | None:
    if node.op_type == "Div" and _near(editor.scalar(node.input[1]), math.sqrt(2.0)):
        return str(node.input[0])
    if node.op_type == "Mul":
        for position in (0, 1):
            if _near(editor.scalar(node.input[1 - position]), math.sqrt(0.5)):
                return str(node.input[position])
    return None


def _is_half_of(editor: GraphEditor, node: onnx.NodeProto, source: str) -> bool:
    if node.op_type != "Mul" or source not in node.input or editor.only_reader(node.output[0]) is None:
        return False
    return _near(_other_scalar(editor, node, source), 0.5)


def _other_scalar(editor: GraphEditor, node: onnx.NodeProto, tensor: str) -> float | None:
    return editor.scalar(node.input[1] if node.input[0] == tensor else node.input[0])


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) <= _CLOSE * wanted
