"""quant: which tensors must hold the same scale, zero point and type. Names in, names out; no numpy, no onnx.

Kernels that move values without computing (kinds ``movement`` and ``concat``) stay exact only where all they read and
make is held alike; tensors joined by them form a class. The range of a class is the union of its *sources*: the
members that some other kernel computes. What a movement makes is made of them and needs no range of its own, except
behind a concat of constants, which brings in values that no other member holds. (A padding of zeros is in every range.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npubake.graph.summary import GraphSummary
from npubake.quant.lanes import float_tensors

SHARING_KINDS = ("movement", "concat")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingClasses:
    """members: representative -> its tensors, in graph order; of: tensor -> representative; sources: as above."""

    of: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, tuple[str, ...]]


def sharing_classes(summary: GraphSummary, integer_groups: frozenset[str]) -> SharingClasses:
    """Classes of all quantisable tensors, joined by the ``movement`` and ``concat`` groups in ``integer_groups``."""
    parent = {name: name for name in summary.quantisable()}
    joining = [group for group in summary.groups if group.kind in SHARING_KINDS and group.name in integer_groups]
    for group in joining:
        tensors = float_tensors(summary, (*group.inputs, *group.outputs))
        for name in tensors[1:]:
            parent[_root(parent, name)] = _root(parent, tensors[0])
    members: dict[str, list[str]] = {}
    for name in parent:
        members.setdefault(_root(parent, name), []).append(name)
    nodes = {node.name: node for node in summary.nodes}
    moved = {
        name
        for group in joining
        if group.kind != "concat" or all(name in parent for node in group.nodes for name in nodes[node].inputs)
        for name in group.outputs
    }
    named = {names[0]: tuple(names) for names in members.values()}
    return SharingClasses(
        of={name: first for first, names in named.items() for name in names},
        members=named,
        sources={first: tuple(name for name in names if name not in moved) for first, names in named.items()},
    )


def _root(parent: dict[str, str], name: str) -> str:
    while parent[name] != name:
        parent[name] = parent[parent[name]]
        name = parent[name]
    return name
