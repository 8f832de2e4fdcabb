"""Fold a constant factor or summand for each channel into the operator before it.

k * (W x + b) + d = (k * W) x + (k * b + d), for Conv, ConvTranspose and Gemm, k and d one value or one a channel.
Where k is one value, the vanished tensor is old = new / k: recorded as ``scaled``. Declined: the tensor between is read
elsewhere or leaves the graph; a factor of zero or one that pushes a weight out of float32's range.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance
from npubake.graph.weighted import Array, apply_affine, channel_values, has_constant_weights, output_channels

_OPERATORS = ("Mul", "Add", "Sub")


def fold_affine(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: dict[str, Provenance] = {}
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type in _OPERATORS]:
        found = _match(editor, node)
        if found is None:
            continue
        maker, scale, shift = found
        middle, result = maker.output[0], node.output[0]
        if editor.only_reader(middle) is not node:
            declined.append(Declined(node=node.name, why=f"{middle!r} is read elsewhere too"))
        elif not scale.all() or not apply_affine(editor, maker, scale, shift):
            declined.append(Declined(node=node.name, why="a factor of zero, or weights outside the range of float32"))
        else:
            editor.remove([node])
            editor.set_output(maker, result)
            _record(records, middle, result, scale, shift)
    return Outcome(model=editor.finish(), provenance=tuple(records.values()), declined=tuple(declined))


def _match(editor: GraphEditor, node: onnx.NodeProto) -> tuple[onnx.NodeProto, Array, Array] | None:
    """(operator before, k, d) for ``node``: k * y + d."""
    for position, name in enumerate(node.input):
        maker = editor.producer(name)
        shape = editor.shape(name)
        if maker is None or shape is None or shape != editor.shape(node.output[0]):
            continue
        if not has_constant_weights(editor, maker):
            continue
        channels = output_channels(editor, maker)
        value = channel_values(editor.constant(node.input[1 - position]), channels, 1, len(shape))
        if value is None:
            continue
        ones, zeros = np.ones(channels), np.zeros(channels)
        if node.op_type == "Mul":
            return maker, value, zeros
        if node.op_type == "Add":
            return maker, ones, value
        return (maker, ones, -value) if position == 0 else (maker, -ones, value)
    return None


def _record(records: dict[str, Provenance], middle: str, result: str, scale: Array, shift: Array) -> None:
    """Add what became of ``middle``, and carry on the records of tensors that had become ``middle`` before."""
    same_scale = bool((scale == scale[0]).all()) and not shift.any()
    factor = 1.0 / float(scale[0])
    for old, record in [*records.items(), (middle, Provenance(old=middle, new=middle, relation="same"))]:
        if record.new != middle:
            continue
        if not same_scale:
            records[old] = Provenance(old=old, new="", relation="gone")
            continue
        total = record.factor * factor
        records[old] = Provenance(old=old, new=result, relation="same" if total == 1.0 else "scaled", factor=total)
