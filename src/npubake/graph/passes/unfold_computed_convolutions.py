"""Write a Conv whose weights are computed as a MatMul of two computed tensors; a computed bias as an Add.

y[n, (g, o), p] = sum over (c, t) of w[(g, o), (c, t)] x[n, (g, c), p s + t d]: a Gather of x, padded, puts what all
taps t of the window read side by side, the second operand. Declined: more than 64 taps, since that operand is so many
times as large as x; auto_pad; other types than float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome

_MOST_TAPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Sizes of one Conv, spatial axes in order. data, result: whole shapes; pads: begins, then ends."""

    data: tuple[int, ...]
    result: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int


def unfold_computed_convolutions(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type == "Conv"]:
        bias = node.input[2] if len(node.input) > 2 else ""
        if editor.is_constant(node.input[1]) and (not bias or editor.is_constant(bias)):
            continue
        window, reason = _window(editor, node)
        if window is None:
            declined.append(Declined(node=node.name, why=reason))
            continue
        if bias:
            _add_behind(editor, node, bias, window)
        if not editor.is_constant(node.input[1]):
            _unfold(editor, node, window)
    return Outcome(model=editor.finish(), declined=tuple(declined))


def _window(editor: GraphEditor, node: onnx.NodeProto) -> tuple[_Window | None, str]:
    """The sizes, or None and why not."""
    data, weight, result = (editor.shape(name) for name in (*node.input[:2], node.output[0]))
    if editor.element_type(node.input[0]) != onnx.TensorProto.FLOAT or data is None or weight is None or result is None:
        return None, "it does not multiply float32 tensors"
    if attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None, "its padding depends on its sizes (auto_pad)"
    if prod(weight[2:]) > _MOST_TAPS and not editor.is_constant(node.input[1]):
        return None, f"its window has {prod(weight[2:])} taps, more than {_MOST_TAPS}"
    ones = [1] * (len(data) - 2)
    return _Window(
        data=data,
        result=result,
        kernel=weight[2:],
        strides=tuple(attribute(node, "strides", ones)),
        dilations=tuple(attribute(node, "dilations", ones)),
        pads=tuple(attribute(node, "pads", [0] * 2 * len(ones))),
        groups=int(attribute(node, "group", 1)),
    ), ""


def _add_behind(editor: GraphEditor, node: onnx.NodeProto, bias: str, window: _Window) -> None:
    """y = product + bias, a value for each channel, the Add under the output's old name."""
    sizes = [1, window.result[1], *[1] * len(window.kernel)]
    result, sums = node.output[0], editor.fresh(f"{node.name}/product")
    column = _reshaped(editor, node.name, bias, sizes)
    editor.set_output(node, sums)
    editor.set_inputs(node, node.input[:2])
    editor.add_node("Add", [sums, column], [result], f"{node.name}/Add")


def _unfold(editor: GraphEditor, node: onnx.NodeProto, window: _Window) -> None:
    name, (data, weight), result = node.name, node.input[:2], node.output[0]
    examples, channels = window.data[:2]
    depth, positions = channels // window.groups * prod(window.kernel), prod(window.result[2:])
    editor.remove([node])
    columns = _columns(editor, name, data, window)
    columns = _reshaped(editor, name, columns, [examples, window.groups, depth, positions])
    rows = _reshaped(editor, name, weight, [1, window.groups, window.result[1] // window.groups, depth])
    sums = editor.fresh(f"{name}/sums")
    editor.add_node("MatMul", [rows, columns], [sums], name).name = name
    shape = editor.add_constant(f"{name}/shape", np.array(window.result, np.int64))
    editor.add_node("Reshape", [sums, shape], [result], f"{name}/Reshape")


def _columns(editor: GraphEditor, name: str, data: str, window: _Window) -> str:
    """What each tap reads for each position: [examples, channels, taps, positions]."""
    begins, ends = window.pads[: len(window.kernel)], window.pads[len(window.kernel) :]
    if any(window.pads):
        amounts = editor.add_constant(f"{name}/pads", np.array([0, 0, *begins, 0, 0, *ends], np.int64))
        padded = editor.fresh(f"{name}/padded")
        editor.add_node("Pad", [data, amounts], [padded], f"{name}/Pad")
        data = padded
    sizes = [size + low + high for size, low, high in zip(window.data[2:], begins, ends, strict=True)]
    flat = _reshaped(editor, name, data, [*window.data[:2], prod(sizes)])
    taps, places = (np.indices(each).reshape(len(sizes), -1) for each in (window.kernel, window.result[2:]))
    steps, gaps = (np.array(each)[:, None] for each in (window.strides, window.dilations))
    read = (taps * gaps)[:, :, None] + (places * steps)[:, None, :]
    indices = editor.add_constant(f"{name}/read", np.ravel_multi_index(tuple(read), sizes).astype(np.int64))
    columns = editor.fresh(f"{name}/columns")
    editor.add_node("Gather", [flat, indices], [columns], f"{name}/Gather", axis=2)
    return columns


def _reshaped(editor: GraphEditor, name: str, tensor: str, sizes: Sequence[int]) -> str:
    shape = editor.add_constant(f"{name}/shape", np.array(sizes, np.int64))
    made = editor.fresh(f"{name}/reshaped")
    editor.add_node("Reshape", [tensor, shape], [made], f"{name}/Reshape")
    return made
