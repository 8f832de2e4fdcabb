"""Raise the constants of attention masks to a value that a quantiser can hold: max(m, FLOOR).

softmax(s + m) with m <= -1e4 gives weights exp(s + m - max) that are 0 in float32. FLOOR = -128 gives the same zero
as long as a masked score is at most 24 above its row's largest kept one (exp(24 - 128) < 2**-149, float32's smallest
number), and a weight below 1e-6 up to 114 above; a range of 3.4e38 instead leaves no step for the scores themselves.
The constants: a summand, a branch of Where, or the factor of a 0/1 mask made by Cast, whose result reaches nothing but
Softmax through Add, Where, Unsqueeze and Expand. Tensors between change their masked elements and get new names.
Declined: a summand that masks a whole row of the softmax axis (there the constant decides the result), other readers.
A row that is masked whole at run time only has no defined meaning, and comes out otherwise than before.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance
from npubake.graph.weighted import Array

LIMIT = -1e4
FLOOR = -128.0
_CARRIERS = ("Add", "Where", "Unsqueeze", "Expand")


def clamp_mask_constants(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for node in list(editor.nodes):
        for slot, value in _mask_constants(editor, node):
            found = _carried(editor, node.output[0])
            if found is None:
                if any(reader.op_type in ("Softmax", *_CARRIERS) for reader in editor.readers(node.output[0])):
                    declined.append(Declined(node=node.name, why="its result reaches more than a Softmax"))
                continue
            tensors, axes = found
            fixed = value.size > 1 or node.op_type == "Add"
            if fixed and any(_covers_a_row(value, axis) for axis in axes):
                declined.append(Declined(node=node.name, why="the mask covers a whole row of the softmax axis"))
                continue
            clamped = editor.add_constant(f"{node.name}/mask", np.maximum(value, np.float32(FLOOR)))
            editor.set_inputs(node, [clamped if index == slot else name for index, name in enumerate(node.input)])
            records.extend(_rename(editor, tensor) for tensor in tensors)
    kept = {record.old: record for record in records}
    return Outcome(model=editor.finish(), provenance=tuple(kept.values()), declined=tuple(declined))


def _mask_constants(editor: GraphEditor, node: onnx.NodeProto) -> list[tuple[int, Array]]:
    """(slot, value) of the node's constants that hide something."""
    slots = {"Add": (0, 1), "Where": (1, 2), "Mul": (0, 1)}.get(node.op_type, ())
    found = []
    for slot in slots:
        value = editor.constant(node.input[slot])
        if value is None or value.dtype != np.float32 or not (value <= LIMIT).any():
            continue
        if node.op_type != "Mul" or _is_zero_or_one(editor, node.input[1 - slot]):
            found.append((slot, value))
    return found


def _is_zero_or_one(editor: GraphEditor, tensor: str) -> bool:
    """True for a Cast of booleans or integers, and for 1 minus it: how exporters write attention masks."""
    node = editor.producer(tensor)
    while node is not None and node.op_type in ("Sub", "Unsqueeze", "Expand", "Reshape"):
        if node.op_type == "Sub" and editor.scalar(node.input[0]) != 1.0:
            return False
        node = editor.producer(node.input[1 if node.op_type == "Sub" else 0])
    if node is None or node.op_type != "Cast":
        return False
    return editor.element_type(node.input[0]) in (
        onnx.TensorProto.BOOL,
        onnx.TensorProto.INT32,
        onnx.TensorProto.INT64,
    )


def _carried(editor: GraphEditor, tensor: str) -> tuple[list[str], list[int]] | None:
    """Tensors from ``tensor`` to the Softmax nodes, and softmax axes counted from the end; None if others read them."""
    tensors, axes, waiting = [], [], [tensor]
    while waiting:
        name = waiting.pop()
        if name in tensors:
            continue
        readers = editor.readers(name)
        if name in editor.outputs or not readers:
            return None
        tensors.append(name)
        for reader in readers:
            if reader.op_type == "Softmax":
                rank = len(editor.shape(name) or ())
                axis = int(attribute(reader, "axis", -1))
                axes.append(axis if axis < 0 else axis - rank)
            elif reader.op_type in _CARRIERS:
                waiting.append(reader.output[0])
            else:
                return None
    return tensors, axes


def _covers_a_row(value: Array, axis: int) -> bool:
    if value.ndim < -axis:
        return True
    return bool((value <= LIMIT).all(axis=axis).any())


def _rename(editor: GraphEditor, tensor: str) -> Provenance:
    maker = editor.producer(tensor)
    if maker is None:
        raise ValueError(f"{tensor!r} is made by no node")
    name = editor.fresh(f"{tensor}/clamped")
    editor.redirect(tensor, name)
    editor.set_output(maker, name)
    return Provenance(old=tensor, new="", relation="gone")
