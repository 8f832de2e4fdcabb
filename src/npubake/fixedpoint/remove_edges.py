"""Fixed-point room: removes nodes beside the model's inputs and outputs, as hb_compile's ``remove_node_type`` does.

A node of a wanted type that reads a graph input alone, or makes a graph output, goes; the edge keeps its name and
takes the dtype and shape of what stood behind the node. Repeated until nothing at an edge matches; Reshape and
Transpose are also found on the far side of a Quantize or Dequantize that stays. What the application
has to do instead is recorded: scale, zero point and axis where a Quantize or Dequantize went. Removing Quantize from an
input x: q = sat(rint(x / scale) + zero_point) is the application's; Dequantize from an output: y = scale * (q - zp).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from npubake.errors import Fault, RecipeError
from npubake.fixedpoint.model_edges import InputEdge, OutputEdge, Side, edge_facts
from npubake.fixedpoint.output_chains import Rebuilt, rebuild_output
from npubake.fixedpoint.removed_node import BEHIND_SOFTMAX, Affine, RemovedNode
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
class LoweredEdges:
    """own_nodes: the optimised model's; other Casts are lowering's own and stay behind an input. rebuilt: outputs in
    front of which graph.json finds nodes to remove (fixedpoint/output_chains.py); nothing but Quantize and Dequantize
    is looked for in the lowered model's outputs then.
    """

    own_nodes: Collection[str]
    rebuilt: Mapping[str, Rebuilt]


def remove_edges(
    model: onnx.ModelProto,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    int32_tail: bool = False,
    untouched: Collection[str] = (),
    lowered: LoweredEdges | None = None,
) -> tuple[onnx.ModelProto, list[RemovedNode]]:
    """The model without edge nodes of the named types (keys of ``REMOVABLE``), and what went, from the edge inwards.

    int32_tail: also remove every Dequantize of an int32 accumulator at an output, whether named or not (platforms whose
    matrix unit has no float output). untouched: inputs that keep their nodes, since the runtime's conversion is baked
    in there. lowered: what is known of the optimised model. Raises RecipeError, all faults at once: an unknown type,
    or one that matched nothing on its side.
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
        if value.name not in untouched:
            moving = [REMOVABLE[name] for name in inputs if name != "Softmax"]  # in front of outputs alone
            removed += _peel(InputEdge(editor, value, lowered.own_nodes if lowered else None), moving)
    left = outputs
    if lowered is not None:
        left = [name for name in outputs if name in ("Quantize", "Dequantize")]
        for value in edges.graph.output:
            rebuilt = lowered.rebuilt.get(value.name)
            removed += rebuild_output(editor, value, rebuilt) if rebuilt is not None else []
        edges = editor.finish()
        editor = GraphEditor(edges)  # it knows the shapes of what was made
    for value in edges.graph.output:
        removed += _peel(OutputEdge(editor, value, int32_tail), [REMOVABLE[name] for name in left])
    faults = _unmatched_types(editor, removed, inputs, outputs)
    if faults:
        raise RecipeError(*faults)
    return (editor.finish() if removed else model), removed


def _unmatched_types(
    editor: GraphEditor, removed: Sequence[RemovedNode], inputs: Sequence[str], outputs: Sequence[str]
) -> list[Fault]:
    sides: tuple[tuple[Side, Sequence[str]], ...] = (("inputs", inputs), ("outputs", outputs))
    return [
        _unmatched(editor, side, name)
        for side, names in sides
        for name in names
        if not any(
            entry.side == side and entry.op_type == REMOVABLE[name] and entry.why != BEHIND_SOFTMAX for entry in removed
        )
    ]


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
