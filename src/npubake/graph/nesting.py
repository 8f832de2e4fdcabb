"""Room ``graph``: graphs inside nodes (the branches of If, the bodies of Loop and Scan). Questions only."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that the attributes of ``node`` hold, in their order; those inside them are not entered."""
    for entry in node.attribute:
        if entry.HasField("g"):
            yield entry.g
        yield from entry.graphs


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of ``graph`` in order, each followed by the nodes of its inner graphs, at any depth."""
    for node in graph.node:
        yield node
        yield from inner_nodes(node)


def inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes of the graphs inside ``node``, at any depth."""
    for graph in inner_graphs(node):
        yield from every_node(graph)


def every_graph(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """``graph`` and all graphs inside it, at any depth."""
    yield graph
    for node in every_node(graph):
        yield from inner_graphs(node)


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that the graphs inside ``node`` read and do not make, each once, in the order of reading."""
    found: dict[str, None] = {}
    for graph in inner_graphs(node):
        made = {value.name for value in graph.input}
        made.update(tensor.name for tensor in graph.initializer)
        made.update(tensor.values.name for tensor in graph.sparse_initializer)
        for inner in graph.node:
            read = (*inner.input, *captured(inner))
            found.update(dict.fromkeys(name for name in read if name and name not in made))
            made.update(inner.output)
        found.update(dict.fromkeys(value.name for value in graph.output if value.name not in made))
    return tuple(found)
