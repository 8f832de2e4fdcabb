"""Fold a constant Pad into the windows that read it.

Conv pads with zeros itself: Conv(Pad(x, p), q) = Conv(x, p + q) when the pad value is 0. AveragePool the same with
count_include_pad = 1. MaxPool pads with -inf: equal when the pad value is -inf, or when it is 0 and x >= 0 (made by
Relu, Sigmoid or a Clip from 0) and each window touches x (pads < kernel). Declined: another pad value or mode, pads
outside the spatial axes, negative pads, auto_pad, ceil_mode, a padded tensor that others read.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance

_WINDOWS = ("Conv", "AveragePool", "MaxPool")


def fold_pad(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for pad in [node for node in editor.nodes if node.op_type == "Pad"]:
        window = editor.only_reader(pad.output[0])
        if window is None or window.op_type not in _WINDOWS or window.input[0] != pad.output[0]:
            continue
        pads = _spatial_pads(editor, pad)
        reason = _unequal(editor, pad, window) if pads is not None else "not constant pads of spatial axes"
        if reason or pads is None:
            declined.append(Declined(node=pad.name, why=reason))
            continue
        records.append(Provenance(old=pad.output[0], new="", relation="gone"))
        _move(editor, pad, window, pads)
    return Outcome(model=editor.finish(), provenance=tuple(records), declined=tuple(declined))


def _spatial_pads(editor: GraphEditor, pad: onnx.NodeProto) -> list[int] | None:
    """Begins, then ends, of the axes from 2 on; None where the Pad does something else."""
    pads, shape = editor.constant(pad.input[1]), editor.shape(pad.input[0])
    if pads is None or shape is None or attribute(pad, "mode", "constant") != "constant":
        return None
    if len(pad.input) > 3 and pad.input[3]:
        return None
    rank = len(shape)
    begins, ends = pads[:rank], pads[rank:]
    if (pads < 0).any() or begins[:2].any() or ends[:2].any():
        return None
    return [int(value) for value in (*begins[2:], *ends[2:])]


def _unequal(editor: GraphEditor, pad: onnx.NodeProto, window: onnx.NodeProto) -> str:
    """Why the fold would not be equal, or ''."""
    value = editor.scalar(pad.input[2]) if len(pad.input) > 2 and pad.input[2] else 0.0
    if attribute(window, "auto_pad", "NOTSET") != "NOTSET" or attribute(window, "ceil_mode", 0):
        return "auto_pad and ceil_mode depend on the padded size"
    own = attribute(window, "pads", [])
    if window.op_type == "MaxPool":
        if len(window.output) > 1 and window.output[1]:
            return "MaxPool hands out indices into the padded tensor"
        if value != -np.inf and not (value == 0.0 and not any(own) and _non_negative(editor, pad.input[0])):
            return "MaxPool pads with minus infinity"
        touches = _every_window_touches(window, _spatial_pads(editor, pad) or [])
        return "" if touches else "a window may lie in the padding"
    if value != 0.0:
        return f"{window.op_type} pads with zeros"
    if window.op_type == "AveragePool" and any(own) and not attribute(window, "count_include_pad", 0):
        return "its own padding is not counted, the Pad's is"
    return ""


def _every_window_touches(window: onnx.NodeProto, pads: list[int]) -> bool:
    """A contiguous window longer than the padding on either side holds at least one real element."""
    kernel = attribute(window, "kernel_shape", [])
    own = attribute(window, "pads", [0] * len(pads))
    contiguous = set(attribute(window, "dilations", [1])) == {1}
    sizes = zip(pads, own, [*kernel, *kernel], strict=True)
    return contiguous and all(amount + extra < size for amount, extra, size in sizes)


def _non_negative(editor: GraphEditor, tensor: str) -> bool:
    maker = editor.producer(tensor)
    if maker is None:
        return False
    if maker.op_type == "Clip":
        low = editor.scalar(maker.input[1]) if len(maker.input) > 1 else None
        return low is not None and low >= 0.0
    return maker.op_type in ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs")


def _move(editor: GraphEditor, pad: onnx.NodeProto, window: onnx.NodeProto, pads: list[int]) -> None:
    own = attribute(window, "pads", [0] * len(pads))
    changed = {"pads": [a + b for a, b in zip(own, pads, strict=True)]}
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in window.attribute} | changed
    if window.op_type == "AveragePool":
        attributes["count_include_pad"] = 1
    del window.attribute[:]
    window.attribute.extend(helper.make_attribute(name, attributes[name]) for name in sorted(attributes))
    source = pad.input[0]
    editor.remove([pad])
    editor.set_inputs(window, [source, *window.input[1:]])
