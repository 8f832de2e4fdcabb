"""Room ``graph``: fusion groups. A model enters, groups that cover every node exactly once leave, in topological order.

A group is what one fused integer kernel computes (the kinds: ``graph.summary``). Patterns are tried in the order of the
table ``_PATTERNS``, nodes in the model's order; the first match takes its nodes. Only tensors with one reader that do
not leave the graph may lie inside a group. Whatever no integer kernel serves, and everything that is not float32
(shape arithmetic, masks, indices), is ``float``: it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.group_kinds import (
    classify,
    classify_add,
    classify_table,
    classify_weighted,
    fused_bias,
    fused_clamp,
    gated_by,
)
from npubake.graph.summary import FusionGroup, GroupKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """kind, nodes in order of computation, canonical function."""

    kind: GroupKind
    nodes: tuple[onnx.NodeProto, ...]
    function: str = ""


def find_groups(model: onnx.ModelProto) -> tuple[FusionGroup, ...]:
    """Every node of ``model`` (sorted, none unused) in exactly one group, groups in topological order."""
    editor = GraphEditor(model)
    position = {node.name: index for index, node in enumerate(editor.nodes)}
    taken: set[str] = set()
    found: list[tuple[int, FusionGroup]] = []
    for node in editor.nodes:
        if node.name in taken:
            continue
        match = next(match for pattern in _PATTERNS if (match := pattern(editor, node)) is not None)
        taken.update(member.name for member in match.nodes)
        found.append((max(position[member.name] for member in match.nodes), _group(editor, match)))
    return tuple(group for _, group in sorted(found, key=lambda entry: entry[0]))


def _group(editor: GraphEditor, match: Match) -> FusionGroup:
    made = [name for node in match.nodes for name in node.output if name]
    own = {node.name for node in match.nodes}
    inner = {name for name in made if name not in editor.outputs and _read_only_by(editor, name, own)}
    read = [name for node in match.nodes for name in node.input if name and not editor.is_constant(name)]
    return FusionGroup(
        name=match.nodes[0].name,
        kind=match.kind,
        nodes=tuple(node.name for node in match.nodes),
        inputs=tuple(dict.fromkeys(name for name in read if name not in made)),
        outputs=tuple(name for name in made if name not in inner),
        function=match.function,
    )


def _read_only_by(editor: GraphEditor, tensor: str, own: set[str]) -> bool:
    readers = editor.readers(tensor)
    return bool(readers) and all(node.name in own for node in readers)


def _weighted(editor: GraphEditor, node: onnx.NodeProto) -> Match | None:
    kind = classify_weighted(editor, node)
    if kind is None:
        return None
    nodes = [node]
    if node.op_type == "MatMul":
        bias = fused_bias(editor, node)
        if bias is not None:
            nodes.append(bias)
    return _with_clamp(editor, kind, nodes)


def _addition(editor: GraphEditor, node: onnx.NodeProto) -> Match | None:
    return _with_clamp(editor, "add", [node]) if classify_add(editor, node) else None


def _with_clamp(editor: GraphEditor, kind: GroupKind, nodes: list[onnx.NodeProto]) -> Match:
    clamp = fused_clamp(editor, nodes[-1])
    if clamp is None:
        return Match(kind=kind, nodes=tuple(nodes))
    return Match(kind=kind, nodes=(*nodes, clamp), function=clamp.op_type.lower())


def _gate(editor: GraphEditor, node: onnx.NodeProto) -> Match | None:
    found = gated_by(editor, node)
    return Match(kind="table", nodes=found[0], function=found[1]) if found is not None else None


def _table(editor: GraphEditor, node: onnx.NodeProto) -> Match | None:
    function = classify_table(editor, node)
    return Match(kind="table", nodes=(node,), function=function) if function else None


def _single(editor: GraphEditor, node: onnx.NodeProto) -> Match | None:
    return Match(kind=classify(editor, node), nodes=(node,))


_PATTERNS: tuple[Callable[[GraphEditor, onnx.NodeProto], Match | None], ...] = (
    _weighted,
    _gate,
    _table,
    _addition,
    _single,
)
