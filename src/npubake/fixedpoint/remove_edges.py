"""Fixed-point room: removes nodes beside the model's inputs and outputs, as hb_compile's ``remove_node_type`` does.

A node of a wanted type that reads a graph input alone, or makes a graph output, goes; the edge keeps its name and
takes the dtype and shape of what stood behind the node. Repeated until nothing at an edge matches; Reshape and
Transpose are also found on the far side of a Quantize or Dequantize that stays. What the application
has to do instead is recorded: scale, zero point and axis where a Quantize or Dequantize went. Removing Quantize from an
input x: q = sat(rint(x / scale) + zero_point) is the application's; Dequantize from an output: y = scale * (q - zp).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from npubake.errors import Fault, RecipeError
from npubake.fixedpoint.model_edges import InputEdge, OutputEdge, Side, edge_facts
from npubake.graph.editing import GraphEditor, attribute

# Names that a recipe uses (the vendor's own) -> ONNX operator.
REMOVABLE: Mapping[str, str] = {
    "Quantize": "QuantizeLinear",
    "Dequantize": "DequantizeLinear",
    "Cast": "Cast",
    "Transpose": "Transpose",
    "Reshape": "Reshape",
    "Softmax": "Softmax",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """real = scale * (q - zero_point); scale: one value, or one a channel along ``axis``."""

    scale: tuple[float, ...]
    zero_point: int
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSoftmax:
    """node: the Softmax of the optimised graph; source: the integer tensor that it reads in the lowered model."""

    node: str
    axis: int
    source: str
    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedNode:
    """One node that went. tensor: the edge's name; dtype, shape: of the edge afterwards (numpy name), before_dtype and
    before_shape: until then; affine: how the edge's integers are read, where a Quantize or Dequantize went at this
    edge; why: ``remove`` or ``tail int32``.
    """

    side: Side
    tensor: str
    node: str
    op_type: str
    dtype: str
    shape: tuple[int, ...]
    before_dtype: str
    before_shape: tuple[int, ...]
    affine: Affine | None
    attributes: Mapping[str, Any]
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def remove_edges(
    model: onnx.ModelProto,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    int32_tail: bool = False,
    untouched: Collection[str] = (),
    softmaxes: Mapping[str, IntegerSoftmax] | None = None,
) -> tuple[onnx.ModelProto, list[RemovedNode]]:
    """The model without edge nodes of the named types (keys of ``REMOVABLE``), and what went, from the edge inwards.

    int32_tail: also remove every Dequantize of an int32 accumulator at an output, whether named or not (platforms whose
    matrix unit has no float output). untouched: inputs that keep their nodes, since the runtime's conversion is baked
    in there. softmaxes: outputs that an integer Softmax makes, which is no single node any more. Raises RecipeError,
    all faults at once: an unknown type, or a type that matched nothing on its side.
    """
    unknown = [
        Fault(where=f"remove.{side}", what=f"{name!r} cannot be removed", hint=f"one of {', '.join(REMOVABLE)}")
        for side, names in (("inputs", inputs), ("outputs", outputs))
        for name in names
        if name not in REMOVABLE
    ]
    if unknown:
        raise RecipeError(*unknown)
    edges = onnx.ModelProto()
    edges.CopyFrom(model)  # its inputs and outputs change their types in place
    editor = GraphEditor(edges)
    removed: list[RemovedNode] = []
    for value in edges.graph.input:
        if value.name in untouched:
            continue
        removed += _peel(InputEdge(editor, value), [REMOVABLE[name] for name in inputs])
    for value in edges.graph.output:
        if "Softmax" in outputs and softmaxes and value.name in softmaxes:
            removed.append(_drop_softmax(editor, value, softmaxes[value.name]))
        removed += _peel(OutputEdge(editor, value, int32_tail), [REMOVABLE[name] for name in outputs])
    sides: tuple[tuple[Side, Sequence[str]], ...] = (("inputs", inputs), ("outputs", outputs))
    faults = [
        _unmatched(editor, side, name)
        for side, names in sides
        for name in names
        if not any(entry.side == side and entry.op_type == REMOVABLE[name] for entry in removed)
    ]
    if faults:
        raise RecipeError(*faults)
    return (editor.finish() if removed else edges), removed


def _drop_softmax(editor: GraphEditor, value: onnx.ValueInfoProto, softmax: IntegerSoftmax) -> RemovedNode:
    """Let the output be the dequantised input of an integer Softmax, which was lowered to many nodes."""
    old = editor.producer(value.name)
    assert old is not None
    inner = editor.fresh(f"{value.name}/softmax")
    editor.redirect(value.name, inner)
    editor.set_output(old, inner)
    zero = np.array(softmax.zero_point, dtype=helper.tensor_dtype_to_np_dtype(editor.element_type(softmax.source)))
    scale = editor.add_constant(f"{value.name}/before_softmax/scale", np.array(softmax.scale, dtype=np.float32))
    point = editor.add_constant(f"{value.name}/before_softmax/zero_point", zero)
    editor.add_node("DequantizeLinear", [softmax.source, scale, point], [value.name], f"{value.name}/before_softmax")
    dtype, shape = edge_facts(value)
    return RemovedNode(
        side="outputs",
        tensor=value.name,
        node=softmax.node,
        op_type="Softmax",
        dtype=dtype,
        shape=shape,
        before_dtype=dtype,
        before_shape=shape,
        affine=None,
        attributes={"axis": softmax.axis},
        why="remove",
    )


def _peel(edge: InputEdge | OutputEdge, op_types: Sequence[str]) -> list[RemovedNode]:
    """Remove nodes from one edge inwards; every entry carries how the edge's integers are read from there on."""
    removed: list[RemovedNode] = []
    affine: Affine | None = None
    while (found := edge.find(op_types)) is not None:
        node, why = found
        moved = _affine_behind(edge.editor, node, affine, edge.side)
        if isinstance(moved, str):
            break
        affine = moved
        facts = {entry.name: attribute(node, entry.name, None) for entry in node.attribute}
        before_dtype, before_shape = edge_facts(edge.value)
        edge.remove(node)
        dtype, shape = edge_facts(edge.value)
        removed.append(
            RemovedNode(
                side=edge.side,
                tensor=edge.value.name,
                node=node.name,
                op_type=node.op_type,
                dtype=dtype,
                shape=shape,
                before_dtype=before_dtype,
                before_shape=before_shape,
                affine=affine,
                attributes={
                    name: list(item) if isinstance(item, tuple | list) else item for name, item in facts.items()
                },
                why=why,
            )
        )
    return removed


def _affine_behind(editor: GraphEditor, node: onnx.NodeProto, affine: Affine | None, side: Side) -> Affine | str | None:
    """How the edge's integers are read once ``node`` has gone; a string says why it must stay."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        scale = editor.constant(node.input[1])
        zero = editor.constant(node.input[2]) if len(node.input) > 2 else None
        if scale is None or affine is not None:
            return "its scale is computed, or the edge is quantised twice"
        values = tuple(float(value) for value in scale.reshape(-1))
        point = 0 if zero is None else int(zero.reshape(-1)[0])
        axis = int(attribute(node, "axis", 1)) if len(values) > 1 else 0
        return Affine(scale=values, zero_point=point, axis=axis)
    if affine is None or len(affine.scale) == 1:
        return affine
    if node.op_type == "Transpose":
        perm = list(attribute(node, "perm", []))
        return replace(affine, axis=perm[affine.axis] if side == "outputs" else perm.index(affine.axis))
    return "a scale a channel cannot be carried over a change of shape"


def _unmatched(editor: GraphEditor, side: Side, name: str) -> Fault:
    if side == "inputs":
        found = {node.op_type for entry in editor.inputs for node in editor.readers(entry)}
    else:
        found = {node.op_type for entry in editor.outputs if (node := editor.producer(entry)) is not None}
    return Fault(
        where=f"remove.{side}",
        what=f"no {name} stands at the model's {side}",
        hint=f"operators there: {', '.join(sorted(found))}; leave {name} out",
    )
