"""Room ``graph/transforms``: factors put into a model that is being edited. A solved ``ChannelMap`` enters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.graph.editing import GraphEditor
from npubake.graph.summary import Provenance
from npubake.graph.transforms.channels import ChannelMap, Summand, Writer
from npubake.graph.transforms.weights import scale_weight

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Renamed:
    """A tensor whose channels are scaled, by old and new name. behind: the old one stands too, before a Mul."""

    old: str
    new: str
    factors: Values
    behind: bool

    def record(self) -> Provenance | None:
        """What became of the old tensor; None where it is as it was."""
        if self.behind:
            return None
        if (self.factors == self.factors[0]).all():
            return Provenance(old=self.old, new=self.new, relation="scaled", factor=1.0 / float(self.factors[0]))
        return Provenance(old=self.old, new="", relation="gone")


def apply_factors(channels: ChannelMap, factors: Values) -> tuple[Renamed, ...]:
    """Let the channel with id i of every tensor be ``factors[i]`` times what it was; the tensors changed.

    Raises StageError where a constant would leave float32's range.
    """
    rows = {entry.node.name: factors[entry.ids] for entry in channels.writers if entry.kind == "weighted"}
    columns = {entry.node.name: 1.0 / factors[entry.ids] for entry in channels.readers}
    shapes = {tensor: channels.editor.shape(tensor) or () for tensor in channels.ids}
    for node in channels.editor.nodes:
        _scale_weighted(channels, node, rows.get(node.name), columns.get(node.name))
    for summand in channels.summands:
        _scale_summand(channels, summand, factors[summand.ids])
    behind = {entry.tensor: entry for entry in channels.writers if entry.kind == "function"}
    for writer in channels.writers:
        if writer.kind == "norm":
            _scale_norm(channels, writer, factors[writer.ids])
    changed = []
    for tensor, ids in list(channels.ids.items()):
        own = factors[ids]
        if (own == 1.0).all():
            continue
        renamed = channels.editor.fresh(f"{tensor}/equalized")
        if tensor in behind:
            _multiply(channels, tensor, renamed, own, len(shapes[tensor]))
        else:
            channels.editor.rename(tensor, renamed)
        changed.append(Renamed(old=tensor, new=renamed, factors=own, behind=tensor in behind))
    return tuple(changed)


def _scale_weighted(channels: ChannelMap, node: onnx.NodeProto, rows: Values | None, columns: Values | None) -> None:
    """New weights and bias, where a factor of what ``node`` reads or makes is not one."""
    rows = rows if rows is not None and (rows != 1.0).any() else None
    columns = columns if columns is not None and (columns != 1.0).any() else None
    if rows is None and columns is None:
        return
    editor = channels.editor
    weight = editor.needed_constant(node.input[1])
    inputs = list(node.input)
    inputs[1] = new_constant(editor, node, f"{inputs[1]}/equalized", scale_weight(node, weight, rows, columns))
    if rows is not None and len(inputs) > 2 and inputs[2]:
        bias = editor.needed_constant(inputs[2]).astype(np.float64)
        inputs[2] = new_constant(editor, node, f"{inputs[2]}/equalized", bias * rows)
    editor.set_inputs(node, inputs)


def _scale_summand(channels: ChannelMap, summand: Summand, factors: Values) -> None:
    """The constant operand of an Add, a factor for each channel."""
    if (factors == 1.0).all():
        return
    node, inputs = summand.node, list(summand.node.input)
    value = channels.editor.needed_constant(inputs[summand.slot]).astype(np.float64)
    shaped = factors.reshape(-1, *(1,) * (-summand.axis - 1))
    inputs[summand.slot] = new_constant(channels.editor, node, f"{inputs[summand.slot]}/equalized", value * shaped)
    channels.editor.set_inputs(node, inputs)


def _scale_norm(channels: ChannelMap, writer: Writer, factors: Values) -> None:
    """gamma and beta of a LayerNormalization, or the constant operand of the Mul that ends a normalisation."""
    if (factors == 1.0).all():
        return
    node, inputs = writer.node, list(writer.node.input)
    slots = range(1, len(inputs)) if node.op_type == "LayerNormalization" else range(2)
    for slot in slots:
        value = channels.editor.constant(inputs[slot])
        if value is not None:
            inputs[slot] = new_constant(
                channels.editor, node, f"{inputs[slot]}/equalized", value.astype(np.float64) * factors
            )
    channels.editor.set_inputs(node, inputs)


def _multiply(channels: ChannelMap, tensor: str, renamed: str, factors: Values, rank: int) -> None:
    """A Mul behind a function: all that read its result read the product."""
    editor = channels.editor
    shape = [1] * rank
    shape[channels.axis[tensor]] = -1
    constant = editor.add_constant(f"{renamed}/factors", factors.astype(np.float32).reshape(shape))
    editor.redirect(tensor, renamed)
    editor.add_node("Mul", [tensor, constant], [renamed], f"{renamed}/Mul")


def new_constant(editor: GraphEditor, node: onnx.NodeProto, name: str, value: NDArray[Any]) -> str:
    """``value`` (float64) rounded to float32, under a name made from ``name``. Raises StageError where it overflows."""
    with np.errstate(over="ignore"):
        rounded = value.astype(np.float32)
    if not np.isfinite(rounded).all():
        what = f"constant {name!r} would leave the range of float32"
        hint = "exclude the layer: set {equivalent_transformation: false} in a layer override"
        raise StageError(Fault(what=what, where=node.name, hint=hint))
    return editor.add_constant(name, rounded)
