"""Room ``graph/transforms``: how operators hand channels on. A model enters, its ``ChannelMap`` leaves.

The rules stand in one table by operator type. An operator without a rule, and any place where a rule does not hold,
keeps its tensors as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.transforms.channels import ChannelMap, Reach, Reader, Summand
from npubake.graph.transforms.moving import (
    concat_channels,
    gather_channels,
    keep_channels,
    reshape_channels,
    slice_channels,
    split_channels,
    transpose_channels,
)
from npubake.graph.weighted import has_constant_weights

_FLOAT = onnx.TensorProto.FLOAT
# Unbounded functions whose channels may differ; a gate's (Sigmoid, HardSigmoid) are alike by themselves.
_FUNCTIONS = ("HardSwish", "Gelu", "Mish", "Elu", "Selu", "Celu", "Softplus", "ThresholdedRelu")


def trace_channels(editor: GraphEditor, reach: Reach) -> ChannelMap:
    """The channels of all float tensors of a model whose nodes are sorted, solved."""
    channels = ChannelMap(editor=editor, kinds=reach.writers)
    inside = {name for ends, nodes in reach.function_ends.items() for name in nodes if name != ends}
    for node in editor.nodes:
        if node.name in inside or editor.element_type(node.output[0]) != _FLOAT:
            keep_channels(channels, node)
        elif node.name in reach.function_ends or node.op_type in _FUNCTIONS:
            _function(channels, node)
        else:
            _RULES.get(node.op_type, keep_channels)(channels, node)
        if node.name in reach.excluded:
            for name in (*node.input, *node.output):
                channels.fix(name, f"{node.name}: excluded")
    for name in editor.outputs:
        channels.fix(name, "an output of the graph")
    channels.solve()
    return channels


def _function(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """A function of each element: what it reads is fixed, behind it a Mul may stand."""
    axes = {channels.axis[name] for name in node.input if name in channels.axis}
    keep_channels(channels, node)
    if len(axes) == 1 and node.output[0] not in channels.editor.outputs:
        channels.write("function", node, axes.pop())


def _weighted(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Conv, ConvTranspose, Gemm; MatMul with a constant matrix on the right."""
    editor, source, result = channels.editor, node.input[0], node.output[0]
    matrix = (
        node.op_type == "MatMul" and editor.is_constant(node.input[1]) and len(editor.shape(node.input[1]) or ()) == 2
    )
    if editor.is_constant(source) or not (matrix or has_constant_weights(editor, node)):
        _product(channels, node)
        return
    rank = len(editor.shape(result) or ())
    axis = rank - 1 if node.op_type in ("MatMul", "Gemm") else 1
    if channels.axis.get(source) == axis:
        channels.readers.append(Reader(node=node, ids=channels.ids[source]))
    else:
        channels.fix(source, node.name)
    channels.write("weighted", node, axis)


def _product(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """A MatMul of two computed tensors: the right one's columns go through (what a Softmax mixes in attention)."""
    if node.op_type != "MatMul" or channels.is_fixed(node.input[1]):
        keep_channels(channels, node)
        return
    right, result = node.input[1], node.output[0]
    rank = len(channels.editor.shape(right) or ())
    channels.fix(node.input[0], node.name)
    out_rank = len(channels.editor.shape(result) or ())
    if channels.axis[right] == rank - 1 and rank > 1 and right != node.input[0]:
        channels.give(result, out_rank - 1, channels.ids[right])
    else:
        channels.fix(right, node.name)
        channels.give_fixed(result, out_rank - 1)


def _normalisation(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """LayerNormalization over the last axis: its gamma and beta multiply."""
    editor = channels.editor
    rank = len(editor.shape(node.output[0]) or ())
    keep_channels(channels, node)
    last = int(attribute(node, "axis", -1)) % rank == rank - 1
    if last and all(editor.is_constant(name) for name in node.input[1:] if name):
        channels.write("norm", node, rank - 1)


def _homogeneous(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """g(f x) = f g(x), channel by channel, sizes of the channel axis kept: Relu, pools, Resize, Neg, ..."""
    source, result = node.input[0], node.output[0]
    axis, editor = channels.axis.get(source), channels.editor
    before, after = editor.shape(source) or (), editor.shape(result) or ()
    kept = axis is not None and len(before) == len(after) and before[axis] == after[axis]
    if axis is None or not kept or any(node.output[1:]) or not _plain(editor, node):
        keep_channels(channels, node)
    else:
        channels.give(result, axis, channels.ids[source])


def _clip(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Clip at zero from below and nowhere from above is Relu. Any other bound is one number for all channels; a Mul
    behind it was measured to lose (EfficientNet-Lite0: 13.0 to 11.4 dB), as others found for ReLU6.
    """
    low = channels.editor.scalar(node.input[1]) if len(node.input) > 1 else None
    (keep_channels if low != 0.0 or any(node.input[2:]) else _homogeneous)(channels, node)


def _plain(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    """Nothing but ``node.input[0]`` is computed, and no value comes in from outside."""
    outside = attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    return not outside and all(editor.is_constant(name) for name in node.input[1:] if name)


def _pad(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Padding with zeros, or with what is there."""
    value = channels.editor.scalar(node.input[2]) if len(node.input) > 2 and node.input[2] else 0.0
    plain = attribute(node, "mode", "constant") != "constant" or value == 0.0
    (_homogeneous if plain else keep_channels)(channels, node)


def _reduced(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """ReduceMean, ReduceSum, ReduceMax, ReduceMin over other axes than the channels'."""
    source, result = node.input[0], node.output[0]
    axis, editor = channels.axis.get(source), channels.editor
    rank = len(editor.shape(source) or ())
    value = editor.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    if axis is None or value is None or rank == 0:
        keep_channels(channels, node)
        return
    axes = {int(entry) % rank for entry in value.reshape(-1)}
    if axis in axes:
        keep_channels(channels, node)
        return
    gone = 0 if attribute(node, "keepdims", 1) else sum(entry < axis for entry in axes)
    channels.give(result, axis - gone, channels.ids[source])


def _add(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Add, Sub: one factor for both operands; a constant operand is multiplied with the other."""
    editor, result = channels.editor, node.output[0]
    rank = len(editor.shape(result) or ())
    computed = [name for name in node.input if not editor.is_constant(name)]
    axes = {channels.axis[name] - len(editor.shape(name) or ()) for name in computed if name in channels.axis}
    sizes = {len(channels.ids[name]) for name in computed if name in channels.ids}
    if len(axes) != 1 or len(sizes) != 1 or any(name not in channels.axis for name in computed):
        keep_channels(channels, node)
        return
    axis, size = axes.pop(), sizes.pop()
    if (editor.shape(result) or ())[axis] != size:
        keep_channels(channels, node)
        return
    ids = channels.ids[computed[0]]
    for slot, name in enumerate(node.input):
        shape = editor.shape(name) or ()
        if not editor.is_constant(name):
            channels.tie(ids, channels.ids[name])
        elif len(shape) < -axis or shape[axis] in (1, size):
            channels.summands.append(Summand(node=node, slot=slot, ids=ids, axis=axis))
        else:
            channels.fix(computed[0], node.name)
    channels.give(result, rank + axis, ids)


def _multiply(channels: ChannelMap, node: onnx.NodeProto) -> None:
    """Mul, Div: by a constant, or by a tensor that is never scaled (a gate): the other operand's factors go through.

    A constant for each channel behind a tensor that is never scaled multiplies by the factors itself (the gamma of an
    RMS normalisation).
    """
    editor, result = channels.editor, node.output[0]
    shape = editor.shape(result) or ()
    free = [name for name in node.input if not editor.is_constant(name) and not channels.is_fixed(name)]
    constants = [name for name in node.input if editor.is_constant(name)]
    gamma = editor.constant(constants[0]) if node.op_type == "Mul" and len(constants) == 1 else None
    if not free and gamma is not None and shape and gamma.shape[-1:] == shape[-1:] and gamma.size == shape[-1] > 1:
        keep_channels(channels, node)
        channels.write("norm", node, len(shape) - 1)
        return
    if len(free) != 1 or (node.op_type == "Div" and free[0] != node.input[0]) or editor.shape(free[0]) != shape:
        keep_channels(channels, node)
        return
    channels.give(result, channels.axis[free[0]], channels.ids[free[0]])


_RULES: dict[str, Callable[[ChannelMap, onnx.NodeProto], None]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), _weighted),
    **dict.fromkeys(
        ("Relu", "LeakyRelu", "PRelu", "Identity", "Abs", "Neg", "MaxPool", "AveragePool", "GlobalAveragePool"),
        _homogeneous,
    ),
    **dict.fromkeys(("GlobalMaxPool", "Resize"), _homogeneous),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), _reduced),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), reshape_channels),
    "LayerNormalization": _normalisation,
    "Clip": _clip,
    "Pad": _pad,
    "Add": _add,
    "Sub": _add,
    "Mul": _multiply,
    "Div": _multiply,
    "Transpose": transpose_channels,
    "Slice": slice_channels,
    "Split": split_channels,
    "Concat": concat_channels,
    "Gather": gather_channels,
}
