"""Room ``graph/transforms``: what a Relu never cuts goes from one bias into the next. A model enters, a model leaves.

With y = W1 x + b1 >= c: relu(y - c) + c = relu(y), so that W2 relu(y) + b2 = W2 relu(y - c) + (b2 + W2 c): the range
[0, high] of the tensor between becomes [0, high - c] (Nagel et al., arXiv 1906.04721, section 4.1.3). c is the
channel's mean less three standard deviations, as there, and never above what was observed to be its minimum; an input
that was never seen is cut at c from below.

Declined: readers with padding (the zeros around stay zeros, they would have to become -c), readers that are no Conv or
Gemm, tensors whose range would shrink by less than a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined
from npubake.graph.summary import Provenance
from npubake.graph.transforms.applying import new_constant
from npubake.graph.transforms.ranges import ChannelRange
from npubake.graph.transforms.weights import bias_shift
from npubake.graph.weighted import has_constant_weights, output_channels

Values = NDArray[np.float64]
_DEVIATIONS = 3.0
_LEAST_GAIN = 0.1  # of the tensor's range: for less, a rounded bias and a cut at c are no fair price


@dataclass(frozen=True, slots=True, kw_only=True)
class Absorbed:
    """writer: the node whose bias gave; readers: those that took it; tensor: between them; most: largest part of any
    channel; channels: how many gave.
    """

    writer: str
    readers: tuple[str, ...]
    tensor: str
    most: float
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Absorption:
    """The new model, what became of tensors, what was done, and where nothing was."""

    model: onnx.ModelProto
    provenance: tuple[Provenance, ...]
    absorbed: tuple[Absorbed, ...]
    declined: tuple[Declined, ...]


def absorb_bias(
    model: onnx.ModelProto, observed: Mapping[str, ChannelRange], excluded: AbstractSet[str] = frozenset()
) -> Absorption:
    """``model`` (optimised) with biases absorbed; ``excluded``: nodes that stay as they are."""
    editor = GraphEditor(model)
    absorbed: list[Absorbed] = []
    declined: list[Declined] = []
    records: list[Provenance] = []
    for node in [node for node in editor.nodes if node.op_type == "Relu"]:
        writer = editor.producer(node.input[0])
        entry = observed.get(node.output[0])
        if writer is None or writer.op_type not in ("Conv", "Gemm") or not has_constant_weights(editor, writer):
            continue
        part = _part(entry, output_channels(editor, writer))
        if part is None:
            continue
        readers = editor.readers(node.output[0])
        reason = _unable(editor, writer, node, readers, excluded)
        if reason:
            declined.append(Declined(node=writer.name, why=reason))
            continue
        absorbed.append(
            Absorbed(
                writer=writer.name,
                readers=tuple(reader.name for reader in readers),
                tensor=node.output[0],
                most=float(part.max()),
                channels=int((part > 0.0).sum()),
            )
        )
        _move(editor, writer, readers, part)
        for tensor in (node.input[0], node.output[0]):
            editor.rename(tensor, editor.fresh(f"{tensor}/absorbed"))
            records.append(Provenance(old=tensor, new="", relation="gone"))
    return Absorption(
        model=editor.finish(), provenance=tuple(records), absorbed=tuple(absorbed), declined=tuple(declined)
    )


def _part(entry: ChannelRange | None, channels: int) -> Values | None:
    """c, float64 [channels]; None where nothing is known or nothing would shrink."""
    if entry is None or entry.axis != 1 or len(entry.low) != channels:
        return None
    deviation = np.sqrt(np.maximum(entry.square - entry.mean * entry.mean, 0.0))
    part = np.maximum(np.minimum(entry.low.astype(np.float64), entry.mean - _DEVIATIONS * deviation), 0.0)
    high = entry.high.astype(np.float64)
    return part if high.size and (high - part).max() <= (1.0 - _LEAST_GAIN) * high.max() else None


def _unable(
    editor: GraphEditor,
    writer: onnx.NodeProto,
    relu: onnx.NodeProto,
    readers: list[onnx.NodeProto],
    excluded: AbstractSet[str],
) -> str:
    """Why nothing can be moved, or ''."""
    tensor = relu.output[0]
    if tensor in editor.outputs or editor.only_reader(relu.input[0]) is not relu:
        return f"{tensor!r}, or what makes it, leaves the graph or is read elsewhere too"
    for reader in readers:
        if (
            reader.op_type not in ("Conv", "Gemm")
            or reader.input[0] != tensor
            or not has_constant_weights(editor, reader)
        ):
            return f"{reader.name} reads it, which has no bias to take it"
        if any(attribute(reader, "pads", [])) or attribute(reader, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return f"{reader.name} pads it with zeros"
    names = [node.name for node in (writer, relu, *readers) if node.name in excluded]
    return f"{names[0]}: excluded" if names else ""


def _move(editor: GraphEditor, writer: onnx.NodeProto, readers: list[onnx.NodeProto], part: Values) -> None:
    _shift_bias(editor, writer, -part)
    for reader in readers:
        _shift_bias(editor, reader, bias_shift(reader, editor.needed_constant(reader.input[1]), part))


def _shift_bias(editor: GraphEditor, node: onnx.NodeProto, shift: Values) -> None:
    inputs = list(node.input)
    old = editor.needed_constant(inputs[2]).astype(np.float64) if len(inputs) > 2 and inputs[2] else np.zeros(1)
    name = new_constant(editor, node, f"{node.name}/bias/absorbed", old.reshape(-1) + shift)
    editor.set_inputs(node, [*inputs[:2], name])
