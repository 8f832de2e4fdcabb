"""Room ``graph/transforms``: how operators that move values hand channels on. One node at a time."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import onnx

from npubake.graph.editing import attribute
from npubake.graph.transforms.channels import FIXED, ChannelMap, Ids

_FLOAT = onnx.TensorProto.FLOAT


def keep_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Nothing that ``node`` reads may be scaled, and nothing that it makes."""
    axis = next((channels.axis[name] for name in node.input if name in channels.axis), None)
    for name in node.input:
        channels.fix(name, node.name)
    for name in node.output:
        if name and axis is not None and channels.editor.element_type(name) == _FLOAT:
            channels.give_fixed(name, axis)


def transpose_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    source = node.input[0]
    rank = len(channels.editor.shape(source) or ())
    order = list(attribute(node, "perm", list(range(rank))[::-1]))
    if source in channels.axis:
        channels.give(node.output[0], order.index(channels.axis[source]), channels.ids[source])


def reshape_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze: the channels stay one axis, perhaps joined by the axes behind it."""
    source, result = node.input[0], node.output[0]
    old, new = channels.editor.shape(source) or (), channels.editor.shape(result) or ()
    axis = channels.axis.get(source)
    if axis is None:
        return
    size, before = old[axis], prod(old[:axis])
    ends = [prod(old[axis + 1 : stop]) for stop in range(axis + 1, len(old) + 1)]
    for place, length in enumerate(new):
        if prod(new[:place]) == before and size and length % size == 0 and length // size in ends:
            channels.give(result, place, np.repeat(channels.ids[source], length // size))
            return
    keep_channels(channels, node)


def slice_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Slice with constant bounds."""
    source, result = node.input[0], node.output[0]
    axis, editor = channels.axis.get(source), channels.editor
    if axis is None:
        return
    given = [editor.constant(name) if name else None for name in node.input[1:]]
    starts, ends = given[0], given[1] if len(given) > 1 else None
    if starts is None or ends is None or len(given) != sum(1 for name in node.input[1:] if editor.is_constant(name)):
        keep_channels(channels, node)
        return
    axes = given[2] if len(given) > 2 else None
    steps = given[3] if len(given) > 3 else None
    rank, ids = len(editor.shape(source) or ()), channels.ids[source]
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        place = int(axes[index]) % rank if axes is not None else index
        if place == axis:
            step = int(steps[index]) if steps is not None else 1
            ids = ids[slice(start, end if end >= -len(ids) else None, step)]
    channels.give(result, axis, ids)


def split_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    source = node.input[0]
    axis, editor = channels.axis.get(source), channels.editor
    if axis is None:
        return
    rank = len(editor.shape(source) or ())
    ids = channels.ids[source]
    if int(attribute(node, "axis", 0)) % rank != axis:
        parts = [ids for _ in node.output]
    else:
        stops = np.cumsum([0, *((editor.shape(name) or (0,) * rank)[axis] for name in node.output)])
        parts = [ids[start:stop] for start, stop in pairwise(stops.tolist())]
    for name, part in zip(node.output, parts, strict=True):
        channels.give(name, axis, part)


def concat_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Along the channels side by side; along another axis one factor for all."""
    editor, result = channels.editor, node.output[0]
    rank = len(editor.shape(result) or ())
    axes = {channels.axis[name] for name in node.input if name in channels.axis}
    if len(axes) != 1:
        keep_channels(channels, node)
        return
    axis = axes.pop()
    if int(attribute(node, "axis", 0)) % rank == axis:
        channels.give(result, axis, np.concatenate([_ids_or_fixed(channels, name, axis) for name in node.input]))
        return
    first = _ids_or_fixed(channels, node.input[0], axis)
    for name in node.input[1:]:
        channels.tie(first, _ids_or_fixed(channels, name, axis))
    channels.give(result, axis, first)


def _ids_or_fixed(channels: ChannelMap, tensor: str, axis: int) -> Ids:
    if tensor in channels.ids:
        return channels.ids[tensor]
    return np.full((channels.editor.shape(tensor) or ())[axis], FIXED, np.int64)


def gather_channels(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Constant indices along another axis than the channels'."""
    source, result = node.input[0], node.output[0]
    axis, editor = channels.axis.get(source), channels.editor
    indices = editor.constant(node.input[1])
    rank = len(editor.shape(source) or ())
    place = int(attribute(node, "axis", 0)) % rank if rank else 0
    if axis is None or indices is None or place == axis:
        keep_channels(channels, node)
        return
    channels.give(result, axis + (indices.ndim - 1 if place < axis else 0), channels.ids[source])
