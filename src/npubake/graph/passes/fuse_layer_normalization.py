"""Write a decomposed LayerNormalization as the operator.

m = mean(x), d = x - m, v = mean(d^2), y = d / sqrt(v + eps) * gamma + beta over the last k axes, as exporters for opset
16 and below write it (d may be computed twice, d^2 as Pow or Mul). Only the result keeps its name.
Declined: axes that are not the last ones, no constant gamma and beta of their shape, inner tensors read elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """source: x; nodes: everything that goes; axis: the first normalised axis; gamma, beta: names of constants."""

    source: str
    result: str
    nodes: tuple[onnx.NodeProto, ...]
    axis: int
    epsilon: float
    gamma: str
    beta: str


def fuse_layer_normalization(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for root in [node for node in editor.nodes if node.op_type == "Sqrt"]:
        match = _match(editor, root)
        if match is None:
            continue
        inner = [name for node in match.nodes for name in node.output if name != match.result]
        reason = _outside_use(editor, match, inner) or _odd_shape(editor, match)
        if reason:
            declined.append(Declined(node=root.name, why=reason))
            continue
        editor.remove(match.nodes)
        editor.add_node(
            "LayerNormalization",
            [match.source, match.gamma, match.beta],
            [match.result],
            f"{root.name}/LayerNormalization",
            axis=match.axis,
            epsilon=match.epsilon,
        )
        records.extend(Provenance(old=name, new="", relation="gone") for name in inner)
    return Outcome(model=editor.finish(), provenance=tuple(records), declined=tuple(declined))


def _match(editor: GraphEditor, root: onnx.NodeProto) -> _Match | None:
    """Walk from the Sqrt down to x and up to the result; None where the pattern does not stand."""
    summed = _made_by(editor, root.input[0], "Add")
    if summed is None:
        return None
    variance_name, epsilon = _split_scalar(editor, summed)
    variance = _made_by(editor, variance_name, "ReduceMean")
    square = editor.producer(variance.input[0]) if variance is not None else None
    inner = _squared(editor, square) if square is not None else None
    centred = _made_by(editor, inner, "Sub") if inner is not None else None
    divide = editor.only_reader(root.output[0])
    if variance is None or square is None or centred is None or divide is None or divide.op_type != "Div":
        return None
    outer = _made_by(editor, divide.input[0], "Sub")
    mean = _made_by(editor, centred.input[1], "ReduceMean")
    if outer is None or mean is None or list(outer.input) != list(centred.input) or mean.input[0] != centred.input[0]:
        return None
    scaled = _constant_reader(editor, divide.output[0], "Mul")
    shifted = _constant_reader(editor, scaled[0].output[0], "Add") if scaled is not None else None
    axis = _last_axes(editor, mean, variance)
    if scaled is None or shifted is None or axis is None:
        return None
    nodes = {id(n): n for n in (mean, centred, outer, square, variance, summed, root, divide, scaled[0], shifted[0])}
    return _Match(
        source=mean.input[0],
        result=shifted[0].output[0],
        nodes=tuple(nodes.values()),
        axis=axis,
        epsilon=epsilon,
        gamma=scaled[1],
        beta=shifted[1],
    )


def _made_by(editor: GraphEditor, tensor: str, op_type: str) -> onnx.NodeProto | None:
    node = editor.producer(tensor)
    return node if node is not None and node.op_type == op_type else None


def _split_scalar(editor: GraphEditor, node: onnx.NodeProto) -> tuple[str, float]:
    """(the computed operand, the constant one) of an Add; ('', 0) where there is no such pair."""
    for position in (0, 1):
        value = editor.scalar(node.input[1 - position])
        if value is not None and not editor.is_constant(node.input[position]):
            return node.input[position], value
    return "", 0.0


def _squared(editor: GraphEditor, node: onnx.NodeProto) -> str | None:
    """d of Pow(d, 2) or Mul(d, d)."""
    if node.op_type == "Pow" and editor.scalar(node.input[1]) == 2.0:
        return str(node.input[0])
    return str(node.input[0]) if node.op_type == "Mul" and node.input[0] == node.input[1] else None


def _constant_reader(editor: GraphEditor, tensor: str, op_type: str) -> tuple[onnx.NodeProto, str] | None:
    """The only reader of ``tensor``, of type ``op_type`` and with a constant on its other side."""
    node = editor.only_reader(tensor)
    if node is None or node.op_type != op_type:
        return None
    other = node.input[1] if node.input[0] == tensor else node.input[0]
    return (node, other) if editor.is_constant(other) else None


def _last_axes(editor: GraphEditor, mean: onnx.NodeProto, variance: onnx.NodeProto) -> int | None:
    """The first normalised axis where both means run over the last axes and keep them."""
    shape = editor.shape(mean.input[0])
    if shape is None or not all(attribute(node, "keepdims", 1) and len(node.input) > 1 for node in (mean, variance)):
        return None
    axes = [editor.constant(node.input[1]) for node in (mean, variance)]
    if axes[0] is None or axes[1] is None:
        return None
    first, second = (sorted(int(axis) % len(shape) for axis in entry.ravel()) for entry in axes if entry is not None)
    return first[0] if first == second and first == list(range(first[0], len(shape))) else None


def _outside_use(editor: GraphEditor, match: _Match, inner: list[str]) -> str:
    own = {id(node) for node in match.nodes}
    for name in inner:
        if name in editor.outputs or any(id(reader) not in own for reader in editor.readers(name)):
            return f"{name!r} is read elsewhere too"
    return ""


def _odd_shape(editor: GraphEditor, match: _Match) -> str:
    shape = editor.shape(match.source) or ()
    for name in (match.gamma, match.beta):
        value = editor.constant(name)
        if value is None or value.shape != shape[match.axis :] or value.dtype != np.float32:
            return f"{name!r} has not the shape of the normalised axes"
    return ""
