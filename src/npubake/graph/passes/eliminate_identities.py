"""Drop nodes whose output equals their input: f(x) = x.

Identity, Dropout (inference), Cast or CastLike to the same type, Reshape/Flatten/Squeeze/Unsqueeze/Expand/Slice/Tile
that keep the shape, Transpose that keeps the order, Pad by nothing, Concat, Sum, Max or Min of one tensor, x + 0,
x - 0, x * 1, x / 1 without a change of shape, Resize that keeps every size, pooling over one element, Clip without
bounds, Relu or Abs of what Relu made. Declined: where both names must stay (a graph input that is a graph output).
"""

from __future__ import annotations

import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance

_SAME_SHAPE = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Slice", "Tile", "Resize", "Pad"))
_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}


def eliminate_identities(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    records: list[Provenance] = []
    declined: list[Declined] = []
    for node in list(editor.nodes):
        source = _kept_input(editor, node)
        if source is None:
            continue
        record = editor.bypass(node, source)
        if record is None:
            declined.append(Declined(node=node.name, why="both of its tensors must keep their names"))
        else:
            records.append(record)
    return Outcome(model=editor.finish(), provenance=_settle(records), declined=tuple(declined))


def _settle(records: list[Provenance]) -> tuple[Provenance, ...]:
    """Follow chains (a -> b, b -> c) to their end: one record for each old name."""
    names = {record.old: record.new for record in records}
    settled = []
    for old, new in names.items():
        seen = {old}
        while new in names and new not in seen:
            seen.add(new)
            new = names[new]
        settled.append(Provenance(old=old, new=new, relation="same"))
    return tuple(settled)


def _kept_input(editor: GraphEditor, node: onnx.NodeProto) -> str | None:
    """The input that equals the first output, or None."""
    if not node.input or not node.input[0]:
        return None
    first = str(node.input[0])
    if node.op_type == "Identity":
        return first
    if node.op_type == "Dropout":
        unused = len(node.output) < 2 or (not editor.readers(node.output[1]) and node.output[1] not in editor.outputs)
        training = len(node.input) > 2 and node.input[2] and editor.scalar(node.input[2]) != 0.0
        return first if unused and not training else None
    if node.op_type in ("Sum", "Max", "Min", "Concat"):
        return first if len(node.input) == 1 else None
    if node.op_type in _NEUTRAL:
        return _neutral(editor, node)
    return first if _keeps_everything(editor, node) else None


def _keeps_everything(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    source, result = node.input[0], node.output[0]
    shape = editor.shape(source)
    if shape is None or shape != editor.shape(result):
        return False
    if node.op_type == "Cast":
        return bool(editor.element_type(source) == attribute(node, "to", 0))
    if node.op_type == "CastLike":
        return editor.element_type(source) == editor.element_type(node.input[1]) != 0
    if node.op_type == "Transpose":
        moved = [axis for axis in attribute(node, "perm", range(len(shape))[::-1]) if shape[axis] != 1]
        return moved == sorted(moved)
    if node.op_type == "Slice":
        steps = editor.constant(node.input[4]) if len(node.input) > 4 else None
        return len(node.input) < 5 or (steps is not None and bool((steps == 1).all()))
    if node.op_type == "Resize":
        scales = editor.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        exact = scales is not None and bool((scales == 1).all())
        by_size = len(node.input) > 3 and bool(node.input[3])
        cropped = attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
        return (exact or by_size) and not cropped
    if node.op_type == "Pad":
        pads = editor.constant(node.input[1])
        return pads is not None and not pads.any()
    if node.op_type in ("MaxPool", "AveragePool"):
        return set(attribute(node, "kernel_shape", [0])) == {1} and len(node.output) == 1
    if node.op_type == "Clip":
        return not any(node.input[1:])
    if node.op_type in ("Relu", "Abs"):
        maker = editor.producer(source)
        return maker is not None and maker.op_type == "Relu"
    return node.op_type in _SAME_SHAPE


def _neutral(editor: GraphEditor, node: onnx.NodeProto) -> str | None:
    """x of ``x + 0``, ``0 + x``, ``x * 1`` and the like, where the shape stays."""
    pairs = [(node.input[0], node.input[1])]
    if node.op_type in ("Add", "Mul"):
        pairs.append((node.input[1], node.input[0]))
    for kept, other in pairs:
        value = editor.constant(other)
        if value is None or value.size == 0 or editor.is_constant(kept):
            continue
        if (value == _NEUTRAL[node.op_type]).all() and editor.shape(kept) == editor.shape(node.output[0]) is not None:
            return str(kept)
    return None
