"""Write pooling so that every window is whole: rounding up becomes padding, and an average divides by one number.

ceil_mode pads the end until the last window fits; ONNX Runtime leaves that window out where it starts behind the input
and its first padding. As explicit padding, maxima (of -infinity and the rest) and averages that do not count padding
stay what they are. An average over the n_p elements of a window that lie in the input is one over all k of them, zeros
included, times k / n_p, a constant for each place p. Declined: averages that count padding and round up (a window then
divides by what it overlaps of the padded input), dilation, auto_pad.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.pooling import Window, state_padding, windows


def count_padding(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type in ("MaxPool", "AveragePool")]:
        reason = _rewrite(editor, node)
        if reason:
            declined.append(Declined(node=node.name, why=reason))
    return Outcome(model=editor.finish(), declined=tuple(declined))


def _rewrite(editor: GraphEditor, node: onnx.NodeProto) -> str:
    """Why not, or '' where the node is as it should be."""
    up, average = bool(attribute(node, "ceil_mode", 0)), node.op_type == "AveragePool"
    counts = bool(attribute(node, "count_include_pad", 0))
    padded = any(attribute(node, "pads", [])) or attribute(node, "auto_pad", "NOTSET").startswith("SAME")
    if not up and not (average and padded and not counts):
        return ""
    shape = editor.shape(node.input[0])
    if shape is None or attribute(node, "auto_pad", "NOTSET") != "NOTSET" or (len(node.output) > 1 and node.output[1]):
        return "its padding follows from its size, or its places are read"
    if average and (set(attribute(node, "dilations", [1])) != {1} or (up and counts)):
        return "its windows divide by what they overlap of the padded input"
    found = windows(node, shape[2:])
    if not all(window.usable for window in found):
        return "its last window would lie in the padding alone"
    state_padding(node, found, average)
    if average:
        _scale(editor, node, found)
    else:
        editor.set_inputs(node, list(node.input))
    return ""


def _scale(editor: GraphEditor, node: onnx.NodeProto, found: list[Window]) -> None:
    """y = average over whole windows * k / n, under the output's old name; nothing where no window is cut."""
    factor = np.ones((1,) * (len(found) + 2))
    for axis, window in enumerate(found):
        ratio = window.kernel / window.inside()
        factor = factor * ratio.reshape(*(1,) * (2 + axis), -1, *(1,) * (len(found) - 1 - axis))
    result = node.output[0]
    if not (factor != 1.0).any():
        editor.set_inputs(node, list(node.input))
        return
    whole = editor.fresh(f"{node.name}/whole")
    editor.set_output(node, whole)
    constant = editor.add_constant(f"{node.name}/factor", factor.astype(np.float32))
    editor.add_node("Mul", [whole, constant], [result], f"{node.name}/Mul")
