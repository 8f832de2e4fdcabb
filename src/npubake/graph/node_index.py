"""Room ``graph``: nodes in order, and which of them makes and reads each tensor, kept up to date edit by edit.

An edit costs what its node has of inputs and outputs, whatever the size of the graph: passes over 10,000 nodes stay
linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


class NodeIndex:
    """Nodes by identity. A node's inputs and outputs may change between ``unlink`` and ``link`` alone."""

    def __init__(self, nodes: Iterable[onnx.NodeProto]) -> None:
        self._nodes: dict[int, onnx.NodeProto] = {}
        self._places: dict[int, int] = {}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, dict[int, onnx.NodeProto]] = {}
        self._added = 0
        for node in nodes:
            self.append(node)

    def __iter__(self) -> Iterator[onnx.NodeProto]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def append(self, node: onnx.NodeProto) -> None:
        """Add ``node`` behind all others."""
        self._nodes[id(node)] = node
        self._places[id(node)] = self._added
        self._added += 1
        self.link(node)

    def remove(self, node: onnx.NodeProto) -> None:
        """Forget ``node``; nothing happens where it is not there."""
        if self._nodes.pop(id(node), None) is not None:
            self.unlink(node)
            del self._places[id(node)]

    def unlink(self, node: onnx.NodeProto) -> None:
        """Forget what ``node`` makes and reads, before that changes."""
        for name in node.output:
            if self._producers.get(name) is node:
                del self._producers[name]
        for name in set(node.input):
            self._readers[name].pop(id(node))

    def link(self, node: onnx.NodeProto) -> None:
        """Learn what ``node`` makes and reads."""
        self._producers.update({name: node for name in node.output if name})
        for name in node.input:
            self._readers.setdefault(name, {})[id(node)] = node

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        """The node that makes ``tensor``."""
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """Nodes that read ``tensor`` in their order, one entry for each reading slot."""
        found = self._readers.get(tensor)
        if not found:
            return []
        ordered = sorted(found.values(), key=lambda node: self._places[id(node)])
        return [node for node in ordered for name in node.input if name == tensor]
