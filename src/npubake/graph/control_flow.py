"""Room ``graph``: If nodes whose condition is known beforehand. The branch taken replaces the node, in place.

If(c){A}{B} = A where c is constantly true. The condition may be computed from constants and from static sizes. Names
inside the branch that are in use outside get new ones. Other sub-graphs (computed conditions, Loop, Scan) stay, for
``outlining``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npubake.graph.constant_evaluation import FOLDABLE_OPERATORS, evaluate_node
from npubake.graph.editing import attribute
from npubake.graph.inference import static_shape
from npubake.graph.naming import all_names, fresh_name
from npubake.graph.opset import OPSET, opset_of

Array = NDArray[Any]


def inline_constant_conditions(model: onnx.ModelProto) -> tuple[str, ...]:
    """Inline every If with a known condition, nested ones too; returns the names of the nodes that went."""
    gone: list[str] = []
    while True:
        for index, node in enumerate(model.graph.node):
            if node.op_type != "If":
                continue
            condition = _value(model, node.input[0], {})
            if condition is not None and condition.size == 1:
                gone.append(node.name)
                _inline(model, index, bool(condition.reshape(-1)[0]))
                break
        else:
            return tuple(gone)


def _value(model: onnx.ModelProto, tensor: str, known: dict[str, Array | None]) -> Array | None:
    """The value of a tensor computed from constants and static sizes, or None; ``known`` keeps each answer."""
    if tensor not in known:
        known[tensor] = None  # what a tensor in a cycle would find
        known[tensor] = _computed(model, tensor, known)
    return known[tensor]


def _computed(model: onnx.ModelProto, tensor: str, known: dict[str, Array | None]) -> Array | None:
    graph = model.graph
    for initializer in graph.initializer:
        if initializer.name == tensor:
            return numpy_helper.to_array(initializer)
    node = next((node for node in graph.node if tensor in node.output), None)
    if node is None:
        return None
    if node.op_type in ("Shape", "Size"):
        facts = {value.name: static_shape(value) for value in (*graph.value_info, *graph.input)}
        shape = facts.get(node.input[0])
        if shape is None:
            return None
        if node.op_type == "Size":
            return np.array(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
        return np.array(shape[attribute(node, "start", 0) : attribute(node, "end", len(shape))], dtype=np.int64)
    if node.op_type not in FOLDABLE_OPERATORS:
        return None
    inputs = [_value(model, name, known) if name else None for name in node.input]
    if any(value is None and name for name, value in zip(node.input, inputs, strict=True)):
        return None
    opset = opset_of(model) or OPSET
    try:
        results = evaluate_node(node, inputs, opset)
    except (ValueError, OverflowError, ZeroDivisionError, IndexError, RuntimeError):
        return None  # no value: then the condition is not known, and the survey names the If
    return results[list(node.output).index(tensor)] if results is not None else None


def _inline(model: onnx.ModelProto, index: int, taken: bool) -> None:
    graph = model.graph
    node = graph.node[index]
    branch = onnx.GraphProto()
    branch.CopyFrom(attribute(node, "then_branch" if taken else "else_branch", None))
    used = all_names(model)
    results: dict[str, str] = dict(zip((value.name for value in branch.output), node.output, strict=True))
    made = {name for inner in branch.node for name in inner.output if name}
    names: dict[str, str] = {name: outer for name, outer in results.items() if name in made and outer}
    for name in [*(tensor.name for tensor in branch.initializer), *sorted(made)]:
        if name not in names:
            names[name] = fresh_name(name, used)
    inlined = list(branch.node)
    for inner in inlined:
        if inner.name:
            inner.name = fresh_name(inner.name, used)
        _rename(inner, names)
    inlined += [
        helper.make_node("Identity", [names.get(name, name)], [outer], name=fresh_name(f"{node.name}/Identity", used))
        for name, outer in results.items()
        if name not in made and outer
    ]
    for tensor in branch.initializer:
        tensor.name = names[tensor.name]
        graph.initializer.append(tensor)
    nodes = [*graph.node[:index], *inlined, *graph.node[index + 1 :]]
    copies = [onnx.NodeProto.FromString(inner.SerializeToString()) for inner in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Apply ``names`` to the node and to what its own sub-graphs read from outside."""
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for entry in node.attribute:
        for graph in (entry.g, *entry.graphs):
            own = {name for inner in graph.node for name in inner.output}
            own.update(tensor.name for tensor in graph.initializer)
            own.update(value.name for value in graph.input)
            outside = {old: new for old, new in names.items() if old not in own}
            for inner in graph.node:
                _rename(inner, outside)
            for value in graph.output:
                value.name = outside.get(value.name, value.name)
