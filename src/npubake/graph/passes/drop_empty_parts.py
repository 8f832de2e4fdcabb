"""Drop tensors that hold no element: concat(x, empty) = concat(x); split(x) = x where all other parts are empty, else
a split into the others.

What a node makes empty altogether is an empty constant, and a sum over nothing is 0. Declined: a graph output that is
empty.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome
from npubake.graph.summary import Provenance


def drop_empty_parts(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    gone: list[Provenance] = []
    declined: list[Declined] = []
    for node in list(editor.nodes):
        empty = [name for name in node.output if _is_empty(editor, name)]
        if any(name in editor.outputs for name in empty):
            declined.append(Declined(node=node.name, why="it makes an output of the graph that holds no element"))
            continue
        full = [name for name in node.output if name and name not in empty]
        if empty and (not full or (node.op_type == "Split" and all(node.output))):
            editor.remove([node])
            if len(full) > 1:
                _split(editor, node, full)
            elif full:
                editor.add_node("Identity", [node.input[0]], full, f"{node.name}/Identity").name = node.name
            for name in empty:
                _make_constant(editor, name)
                gone.append(Provenance(old=name, new="", relation="gone"))
        elif _sums_nothing(editor, node):
            editor.remove([node])
            _make_constant(editor, node.output[0])
            gone.append(Provenance(old=node.output[0], new="", relation="gone"))
        elif node.op_type == "Concat" and any(_is_empty(editor, name) for name in node.input):
            editor.set_inputs(node, [name for name in node.input if not _is_empty(editor, name)])
    return Outcome(model=editor.finish(), provenance=tuple(gone), declined=tuple(declined))


def _split(editor: GraphEditor, node: onnx.NodeProto, parts: list[str]) -> None:
    """``node`` once more, into ``parts`` alone."""
    axis = int(attribute(node, "axis", 0))
    sizes = [(editor.shape(name) or ())[axis] for name in parts]
    constant = editor.add_constant(f"{node.name}/sizes", np.array(sizes, np.int64))
    editor.add_node("Split", [node.input[0], constant], parts, f"{node.name}/Split", axis=axis).name = node.name


def _sums_nothing(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    """Sums of products, squares or magnitudes of no element, which no output of the graph is."""
    sums = node.op_type in ("MatMul", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")
    known = editor.shape(node.output[0]) is not None and node.output[0] not in editor.outputs
    return sums and known and _is_empty(editor, node.input[0])


def _is_empty(editor: GraphEditor, tensor: str) -> bool:
    shape = editor.shape(tensor) if tensor else None
    return shape is not None and math.prod(shape) == 0


def _make_constant(editor: GraphEditor, tensor: str) -> None:
    shape = editor.shape(tensor)
    assert shape is not None
    editor.set_constant(tensor, np.zeros(shape, helper.tensor_dtype_to_np_dtype(editor.element_type(tensor))))
