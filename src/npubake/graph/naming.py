"""Room ``graph``: names. A model enters and leaves with every node named once, the same in every run, those in the
graphs inside nodes too.

An unnamed node is called after its operator and its first output (``Conv_t1``), which survives an insertion elsewhere.
A name taken twice keeps its first bearer; the others get a number. New names avoid every tensor, initialiser and node.
"""

from __future__ import annotations

import onnx

from npubake.graph.nesting import every_graph, every_node


def name_nodes(model: onnx.ModelProto) -> dict[str, str]:
    """Name the nodes of ``model`` in place; returns new name -> why (``unnamed`` or the name that it shared)."""
    taken = all_names(model)
    seen: set[str] = set()
    changes: dict[str, str] = {}
    for node in every_node(model.graph):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        why = node.name or "unnamed"
        output = next((name for name in node.output if name), "")
        wish = f"{node.op_type}_{output}" if not node.name else f"{node.name}_1"
        name, number = wish, 1
        while name in taken:
            number += 1
            name = f"{node.name or wish}_{number}"
        node.name = name
        taken.add(name)
        seen.add(name)
        changes[name] = why
    return changes


def all_names(model: onnx.ModelProto) -> set[str]:
    """Every name that a graph of the model uses for a tensor, an initialiser or a node."""
    names: set[str] = set()
    for graph in every_graph(model.graph):
        names.update(value.name for value in (*graph.input, *graph.output, *graph.value_info))
        names.update(tensor.name for tensor in graph.initializer)
        names.update(tensor.values.name for tensor in graph.sparse_initializer)
        for node in graph.node:
            names.add(node.name)
            names.update(node.input)
            names.update(node.output)
    return names


def fresh_name(wish: str, taken: set[str]) -> str:
    """``wish``, or ``wish`` with the first number that makes it new; it is taken from then on."""
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    taken.add(name)
    return name
