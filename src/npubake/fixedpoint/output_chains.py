"""Fixed-point room: an output without the nodes that graph.json says go in front of it, whatever they were lowered to.

The output is made again from the tensor that fed the innermost of them: its integers and one DequantizeLinear where it
is held so, else its real values; Reshapes and Transposes that stay are copied in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npubake.fixedpoint.model_edges import edge_facts
from npubake.fixedpoint.removed_node import BEHIND_SOFTMAX, RemovedNode
from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.removals import OutputChain
from npubake.graph.summary import GraphSummary, Provenance
from npubake.quant.parameters import TensorParameters

_INTEGERS = (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT16, TensorProto.UINT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """One output to be made again. taken, kept: nodes of the optimised model, from the output inwards.

    unasked: taken ones that the recipe did not name; softmax_axis: along which the application's Softmax works on the
    edge; constants: of the kept nodes; source: where the tensor stands that becomes the output; held:
    its integer form.
    """

    output: str
    taken: tuple[onnx.NodeProto, ...]
    kept: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...]
    unasked: frozenset[str]
    softmax_axis: int | None
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    source: Provenance
    held: TensorParameters | None


def rebuilt_output(
    model: onnx.ModelProto,
    summary: GraphSummary,
    chain: OutputChain,
    source: Provenance,
    held: TensorParameters | None,
) -> Rebuilt:
    """Of ``chain``. A movement past which the Softmax's axis cannot be carried goes with it, since the application has
    to work in front of it.
    """
    nodes = {node.name: node for node in model.graph.node}
    shapes = {name: tuple(fact.shape) for name, fact in summary.tensors.items()}
    taken, kept = tuple(nodes[node.name] for node in chain.taken), tuple(nodes[node.name] for node in chain.kept)
    softmax = [node for node in taken if node.op_type == "Softmax"]
    axis, unasked = None, frozenset[str]()
    if softmax:
        first = softmax[-1]
        axis = int(attribute(first, "axis", -1)) % len(shapes[first.input[0]])
        for node in reversed(kept):
            axis = _moved_axis(node, axis, shapes) if axis is not None else None
        if axis is None:
            unasked = frozenset(node.name for node in kept)
            taken, kept = (*taken[:-1], *kept, first), ()
            axis = int(attribute(first, "axis", -1)) % len(shapes[first.input[0]])
    read = {name for node in kept for name in node.input}
    return Rebuilt(
        output=chain.output,
        taken=taken,
        kept=kept,
        unasked=unasked,
        constants=tuple(entry for entry in model.graph.initializer if entry.name in read),
        softmax_axis=axis,
        shapes=shapes,
        dtypes={name: fact.dtype for name, fact in summary.tensors.items()},
        source=source,
        held=held,
    )


def _moved_axis(node: onnx.NodeProto, axis: int, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Where ``axis`` of a movement's input lies in its output: same length, same elements before and after it."""
    before, after = shapes[node.input[0]], shapes[node.output[0]]
    if node.op_type == "Transpose":
        return list(attribute(node, "perm", list(reversed(range(len(before)))))).index(axis)
    for place, size in enumerate(after):
        if size == before[axis] and prod(after[:place]) == prod(before[:axis]):
            return place
    return None


def rebuild_output(editor: GraphEditor, value: onnx.ValueInfoProto, plan: Rebuilt) -> list[RemovedNode]:
    """Make the output again; what went, from the edge inwards, with the edge's form after each."""
    inner = editor.fresh(f"{value.name}/removed")
    old = editor.producer(value.name)
    assert old is not None
    before_dtype, before_shape = edge_facts(value)
    editor.redirect(value.name, inner)
    editor.set_output(old, inner)
    name, scaled = _integers(editor, plan)
    known = {entry.name: editor.add_constant(f"{value.name}/{entry.name}", _array(entry)) for entry in plan.constants}
    for node in reversed(plan.kept):
        made = editor.fresh(f"{value.name}/{node.op_type}")
        facts = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        inputs = [name, *(known.get(entry, entry) for entry in node.input[1:])]
        editor.add_node(node.op_type, inputs, [made], made, **facts)
        name = made
    if scaled is not None:
        editor.add_node("DequantizeLinear", [name, *scaled], [value.name], f"{value.name}/DequantizeLinear")
    else:
        last = editor.add_node("Identity", [name], [value.name], f"{value.name}/Identity")
        if name != value.name and editor.producer(name) is not None:
            editor.bypass(last, name)
    shape = plan.shapes[plan.kept[0].output[0] if plan.kept else plan.taken[-1].input[0]]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(plan.dtypes[plan.taken[-1].input[0]]))
    value.type.CopyFrom(helper.make_tensor_type_proto(kind, shape))
    return _records(plan, (before_dtype, before_shape))


def _integers(editor: GraphEditor, plan: Rebuilt) -> tuple[str, tuple[str, str] | None]:
    """The source's name, and scale and zero point where it is held in integers."""
    source, output = plan.source, plan.output
    if source.relation != "scaled":
        return source.new, None
    name, kind = source.new, editor.element_type(source.new)
    zero_point = source.zero_point
    if kind not in _INTEGERS and plan.held is not None:  # integers in float32, around zero
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(plan.held.dtype))
        zero_point = plan.held.zero_point
        offset = editor.add_constant(f"{output}/offset", np.array(zero_point, dtype=np.float32))
        raised, name = editor.fresh(f"{output}/raised"), editor.fresh(f"{output}/integer")
        editor.add_node("Add", [source.new, offset], [raised], raised)
        editor.add_node("Cast", [raised], [name], name, to=kind)
    scale = editor.add_constant(f"{output}/scale", np.array(source.factor, dtype=np.float32))
    zero = np.array(zero_point, dtype=helper.tensor_dtype_to_np_dtype(kind))
    return name, (scale, editor.add_constant(f"{output}/zero_point", zero))


def _array(tensor: onnx.TensorProto) -> Any:
    return onnx.numpy_helper.to_array(tensor)


def _records(plan: Rebuilt, edge: tuple[str, tuple[int, ...]]) -> list[RemovedNode]:
    dtype, shape = edge
    found: list[RemovedNode] = []
    for node in plan.taken:
        facts = {entry.name: attribute(node, entry.name, None) for entry in node.attribute}
        if node.op_type == "Softmax":
            facts["axis"] = plan.softmax_axis
        moved = node.op_type == "Softmax" and plan.kept
        after = shape if moved else plan.shapes[node.input[0]]
        entry = RemovedNode(
            side="outputs",
            tensor=plan.output,
            node=node.name,
            op_type=node.op_type,
            dtype=plan.dtypes[node.input[0]],
            shape=after,
            before_dtype=dtype,
            before_shape=shape,
            affine=None,
            attributes={name: list(item) if isinstance(item, tuple | list) else item for name, item in facts.items()},
            why=BEHIND_SOFTMAX if node.name in plan.unasked else "remove",
        )
        dtype, shape = entry.dtype, entry.shape
        found.append(entry)
    return found
