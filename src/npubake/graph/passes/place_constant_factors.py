"""Write a MatMul with one constant operand as one whose second operand is a matrix, or as a Conv over positions.

C x with C [M, K] = Conv(x, C) over the columns of x; x C with C [B, K, N] = a Conv with a group for each of B, or where
x is the same for all B, one product with B * N columns (``graph/contraction.py``). A vector is a matrix of one row or
column.
"""

from __future__ import annotations

import onnx

from npubake.graph.contraction import Operand, Result, write_constant_product
from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Outcome


def place_constant_factors(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    for node in [node for node in editor.nodes if node.op_type == "MatMul"]:
        first, second, shape = (editor.shape(name) for name in (*node.input, node.output[0]))
        constant = [editor.is_constant(name) for name in node.input]
        if editor.element_type(node.input[0]) != onnx.TensorProto.FLOAT or constant.count(True) != 1:
            continue
        if first is None or second is None or shape is None or 0 in (*first, *second):
            continue
        if constant[0] or len(second) != 2:
            _place(editor, node, (first, second), shape)
    return Outcome(model=editor.finish())


def _place(
    editor: GraphEditor,
    node: onnx.NodeProto,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    shape: tuple[int, ...],
) -> None:
    """Rows are i, columns j, summed k; axes before them b1, b2, ... from the end, without those of size 1."""
    operands: list[Operand] = []
    batch: set[str] = set()
    for name, sizes, ends in zip(node.input, shapes, (("i", "k"), ("k", "j")), strict=True):
        own = ends if len(sizes) > 1 else ("k",)
        front = len(sizes) - len(own)
        labels = [f"b{front - place}" for place in range(front)]
        kept = [(label, size) for label, size in zip(labels, sizes, strict=False) if size > 1]
        batch.update(label for label, _ in kept)
        operands.append(
            Operand(
                tensor=name,
                labels=(*(label for label, _ in kept), *own),
                shape=(*(size for _, size in kept), *sizes[front:]),
                full=sizes,
                value=editor.constant(name),
            )
        )
    rows = tuple(label for operand in operands for label in operand.labels if label in ("i", "j"))
    order = (*sorted(batch, key=lambda label: -int(label[1:])), *rows)
    result = Result(tensor=node.output[0], labels=order, shape=shape)
    data, weight = operands if operands[0].value is None else reversed(operands)
    editor.remove([node])
    write_constant_product(editor, node.name, data, weight, result)
