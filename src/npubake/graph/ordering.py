"""Room ``graph``: topological order. Nodes enter in any order, the same nodes leave so that producers stand first.

Kahn's algorithm with a heap on the entering position: a list that is sorted already comes back unchanged, and the
answer depends on nothing but the list.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import onnx

from npubake.errors import Fault, RecipeError


def sort_nodes(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """``nodes`` in topological order. Raises RecipeError if the graph has a cycle."""
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    readers: dict[int, list[int]] = {}
    waiting = [0] * len(nodes)
    for index, node in enumerate(nodes):
        sources = {producer[name] for name in node.input if name in producer}
        waiting[index] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    ordered: list[onnx.NodeProto] = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append(nodes[index])
        for reader in readers.get(index, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(ordered) != len(nodes):
        stuck = [node.name or node.op_type for node, count in zip(nodes, waiting, strict=True) if count]
        raise RecipeError(
            Fault(
                what=f"{len(stuck)} nodes wait for each other: {', '.join(stuck[:5])}",
                where=stuck[0],
                hint="the graph has a cycle; export the model again",
            )
        )
    return ordered


def needed_nodes(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Those of ``nodes`` that some output depends on, in the given order."""
    producers = {name: node for node in nodes for name in node.output if name}
    wanted, keep = list(outputs), set()
    while wanted:
        node = producers.get(wanted.pop())
        if node is not None and id(node) not in keep:
            keep.add(id(node))
            wanted.extend(node.input)
    return [node for node in nodes if id(node) in keep]
