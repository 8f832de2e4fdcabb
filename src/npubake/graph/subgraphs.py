"""Room ``graph``: what lies between tensors. graph.json and names enter, names of nodes leave; pure Python."""

from __future__ import annotations

from collections.abc import Iterable

from npubake.graph.summary import GraphSummary


def nodes_between(summary: GraphSummary, sources: Iterable[str], targets: Iterable[str]) -> frozenset[str]:
    """Nodes on some path that starts at a tensor of ``sources`` and ends at one of ``targets``.

    They read a source or what was made of one, and make a target or what one is made of.
    """
    after, before = set(sources), set(targets)
    behind = set()
    for node in summary.nodes:
        if not after.isdisjoint(node.inputs):
            behind.add(node.name)
            after.update(name for name in node.outputs if name)
    between = set()
    for node in reversed(summary.nodes):
        if not before.isdisjoint(node.outputs):
            before.update(name for name in node.inputs if name)
            if node.name in behind:
                between.add(node.name)
    return frozenset(between)
