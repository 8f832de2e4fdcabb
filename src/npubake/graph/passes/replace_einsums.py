"""Write an Einsum as Transpose, Reshape, and MatMul, Conv or Mul: sums of products (``graph/contraction.py``).

A label that only one operand of two holds, and that is not in the result, is summed first: sum_ab x_a y_b =
(sum_a x_a) (sum_b y_b). More than two operands are multiplied from left to right. An ellipsis stands for axes counted
from the end. Declined: a label twice in one term (a diagonal), other types than float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from npubake.graph.contraction import Chain, Labels, Operand, Result, write_constant_product, write_product
from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.passes.outcome import Declined, Outcome


def replace_einsums(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type == "Einsum"]:
        shapes = [editor.shape(name) or () for name in node.input]
        terms = _terms(attribute(node, "equation", ""), [len(shape) for shape in shapes])
        reason = _unequal(editor, node, terms)
        if reason:
            declined.append(Declined(node=node.name, why=reason))
            continue
        result = Result(tensor=node.output[0], labels=terms[-1], shape=editor.shape(node.output[0]) or ())
        operands = _operands(editor, node, terms, shapes)
        editor.remove([node])
        _write(editor, node.name, operands, result)
    return Outcome(model=editor.finish(), declined=tuple(declined))


def _terms(equation: str, ranks: Sequence[int]) -> list[Labels]:
    """Labels of each operand and of the result; without an arrow that holds, sorted, what stands there once."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        once = sorted(label for label in letters if letters.count(label) == 1)
        right = "".join(["..." if "..." in left else "", *once])
    most = max((count for term, count in zip(terms, hidden, strict=True) if "..." in term), default=0)
    return [_labels(term, count) for term, count in zip((*terms, right), (*hidden, most), strict=True)]


def _labels(term: str, hidden: int) -> Labels:
    """A label for each axis; the hidden ones of an ellipsis are called by their place from its end."""
    before, dots, behind = term.partition("...")
    return (*before, *([f"~{hidden - place}" for place in range(hidden)] if dots else ()), *behind)


def _unequal(editor: GraphEditor, node: onnx.NodeProto, terms: Sequence[Labels]) -> str:
    """Why not, or ''."""
    if any(editor.element_type(name) != onnx.TensorProto.FLOAT for name in node.input):
        return "it does not multiply float32 tensors"
    if all(editor.is_constant(name) for name in node.input):
        return "all of it is constant"
    if any(len(set(labels)) < len(labels) for labels in terms):
        return "a label stands twice in one term"
    empty = any(0 in (editor.shape(name) or ()) for name in node.input)
    return "an operand holds no element" if empty else ""


def _operands(
    editor: GraphEditor, node: onnx.NodeProto, terms: Sequence[Labels], shapes: Sequence[tuple[int, ...]]
) -> list[Operand]:
    """The operands; an axis of size 1 that another operand widens has no label."""
    pairs = [list(zip(labels, shape, strict=True)) for labels, shape in zip(terms[:-1], shapes, strict=True)]
    widest: dict[str, int] = {}
    for label, size in (entry for own in pairs for entry in own):
        widest[label] = max(size, widest.get(label, 1))
    kept = [[(label, size) for label, size in own if size == widest[label]] for own in pairs]
    return [
        Operand(
            tensor=name,
            labels=tuple(label for label, _ in own),
            shape=tuple(size for _, size in own),
            full=shape,
            value=editor.constant(name),
        )
        for name, own, shape in zip(node.input, kept, shapes, strict=True)
    ]


def _write(editor: GraphEditor, name: str, operands: Sequence[Operand], result: Result) -> None:
    first, *others = operands
    if not others:
        _rearrange(editor, name, first, result)
        return
    second, *rest = others
    if rest:
        partial = _partial(editor, name, operands, result)
        _write(editor, editor.fresh(f"{name}/first"), (first, second), partial)
        made = Operand(tensor=partial.tensor, labels=partial.labels, shape=partial.shape)
        _write(editor, name, (made, *rest), result)
        return
    first = _summed(editor, name, first, {*others[0].labels, *result.labels})
    second = _summed(editor, name, second, {*first.labels, *result.labels})
    sums = any(label in second.labels and label not in result.labels for label in first.labels)
    if sums and first.value is not None and second.value is None:
        write_constant_product(editor, name, second, first, result)
    elif sums and second.value is not None and first.value is None:
        write_constant_product(editor, name, first, second, result)
    else:
        write_product(editor, name, first, second, result)


def _partial(editor: GraphEditor, name: str, operands: Sequence[Operand], result: Result) -> Result:
    """The product of the first two, with every axis that is named later."""
    first, second, *rest = operands
    needed = {*result.labels, *(label for each in rest for label in each.labels)}
    labels = tuple(dict.fromkeys(label for label in (*first.labels, *second.labels) if label in needed))
    shape = tuple((first if label in first.labels else second).size((label,)) for label in labels)
    return Result(tensor=editor.fresh(f"{name}/partial"), labels=labels, shape=shape)


def _rearrange(editor: GraphEditor, name: str, operand: Operand, result: Result) -> None:
    summed = _summed(editor, name, operand, set(result.labels))
    chain = Chain.on(editor, name, summed)
    chain.transpose(summed.labels, result.labels)
    made = chain.write(summed.tensor, result.tensor)
    if made != result.tensor:
        editor.add_node("Identity", [made], [result.tensor], f"{name}/Identity")


def _summed(editor: GraphEditor, name: str, operand: Operand, needed: set[str]) -> Operand:
    """The operand without the axes that nothing else names."""
    kept = [place for place, label in enumerate(operand.labels) if label in needed]
    if len(kept) == len(operand.labels):
        return operand
    alone = tuple(place for place in range(len(operand.labels)) if place not in kept)
    labels = tuple(operand.labels[place] for place in kept)
    shape = tuple(operand.shape[place] for place in kept)
    if operand.value is not None:
        wide = operand.value.reshape(operand.shape).astype(np.float64)
        value = np.asarray(wide.sum(axis=alone), np.float32)
        made = editor.add_constant(f"{name}/summed", value)
        return Operand(tensor=made, labels=labels, shape=shape, value=value)
    chain = Chain.on(editor, name, operand)
    axes = editor.add_constant(f"{name}/axes", np.array(alone, np.int64))
    chain.combine("ReduceSum", axes, shape, keepdims=0)
    return Operand(tensor=chain.write(operand.tensor), labels=labels, shape=shape)
