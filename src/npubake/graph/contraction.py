"""Room ``graph``: sums of products of two tensors, labelled as in an Einsum, as operators with an integer kernel.

Each label is an axis. *Shared* labels stand in both operands and in the result, *summed* ones in both and not in the
result, all others in one operand and in the result. One constant operand makes a MatMul whose second operand is a
matrix where nothing is shared and the summed axes come last, else a Conv over positions, a group for each shared index:
y[d1, (g, n), d2] = sum over k of W[(g, n), k] x[d1, (g, k), d2]. Two computed operands make a MatMul over the shared
axes. Transpose and Reshape bring the operands to it and the result from it, and only where they change something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from npubake.graph.editing import Array, GraphEditor

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor and its axes. shape: of the axes that have a label; full: of all, where others of size 1 lie between;
    value: of a constant.
    """

    tensor: str
    labels: Labels
    shape: tuple[int, ...]
    full: tuple[int, ...] = ()
    value: Array | None = None

    def sizes(self, labels: Sequence[str]) -> list[int]:
        return [self.shape[self.labels.index(label)] for label in labels]

    def size(self, labels: Sequence[str]) -> int:
        return prod(self.sizes(labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The tensor to be made, its labels, and its shape (with axes of size 1 that have no label)."""

    tensor: str
    labels: Labels
    shape: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Chain:
    """Nodes to be written one behind the other. name: of the one that multiplies; shape: what the last one makes."""

    editor: GraphEditor
    name: str
    shape: list[int]
    steps: list[tuple[str, list[int], tuple[str, ...], dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def on(cls, editor: GraphEditor, name: str, operand: Operand) -> Chain:
        """A chain that starts with ``operand``, its axes without label taken away."""
        chain = cls(editor=editor, name=name, shape=list(operand.full or operand.shape))
        chain.reshape(operand.shape)
        return chain

    def reshape(self, sizes: Sequence[int]) -> None:
        """One Reshape for several in a row, none where the sizes are the same."""
        before = self.steps.pop()[1] if self.steps and self.steps[-1][0] == "Reshape" else self.shape
        self.shape = list(sizes)
        if before != self.shape:
            self.steps.append(("Reshape", before, (), {}))

    def transpose(self, before: Labels, after: Labels) -> None:
        if before != after:
            order = [before.index(label) for label in after]
            self.steps.append(("Transpose", self.shape, (), {"perm": order}))
            self.shape = [self.shape[place] for place in order]

    def combine(self, op_type: str, second: str, sizes: Sequence[int], **attributes: Any) -> None:
        self.steps.append((op_type, self.shape, (second,), attributes))
        self.shape = list(sizes)

    def write(self, source: str, result: str = "") -> str:
        """Nodes from ``source`` to ``result`` ('' for a fresh name); returns the name of what they make."""
        shapes = [*(before for _, before, _, _ in self.steps), self.shape][1:]
        current = source
        for index, ((op_type, _, more, attributes), sizes) in enumerate(zip(self.steps, shapes, strict=True)):
            wish = f"{self.name}/{op_type}"
            last = result if index == len(self.steps) - 1 else ""
            made = last or self.editor.fresh(f"{wish}_result")
            if op_type == "Reshape":
                more = (self.editor.add_constant(f"{self.name}/shape", np.array(sizes, np.int64)),)
            node = self.editor.add_node(op_type, [current, *more], [made], wish, **attributes)
            if op_type in ("MatMul", "Conv", "Mul"):
                node.name = self.name
            current = made
        return current


def write_constant_product(editor: GraphEditor, name: str, data: Operand, weight: Operand, result: Result) -> None:
    """``data`` (computed) times ``weight`` (constant), float32, summed over what both hold and the result does not.

    Every label of an operand must stand in the other one or in the result. name: of the node that stood there, which
    must be gone.
    """
    shared, summed, kept, new = _parts(data, weight, result)
    chain = Chain.on(editor, name, data)
    if not shared and data.labels == kept + summed:
        made = _matrix_product(chain, data, weight, (kept, summed, new))
    else:
        made = _convolution(chain, data, weight, (shared, summed, kept, new))
    chain.transpose(made, result.labels)
    chain.reshape(result.shape)
    chain.write(data.tensor, result.tensor)


def write_product(editor: GraphEditor, name: str, first: Operand, second: Operand, result: Result) -> None:
    """The same of two computed operands, or of any two where nothing is summed (an element-wise product then)."""
    shared, summed, rows, columns = _parts(first, second, result)
    chain, other = (Chain.on(editor, wish, each) for wish, each in ((name, first), (f"{name}/second", second)))
    if not summed:
        aligned = [_align(*pair, result.labels).write(pair[1].tensor) for pair in ((chain, first), (other, second))]
        last = Chain(editor=editor, name=name, shape=[])
        last.combine("Mul", aligned[1], _common(first, second, result.labels))
        last.reshape(result.shape)
        last.write(aligned[0], result.tensor)
        return
    batch, depth = first.sizes(shared), first.size(summed)
    other.transpose(second.labels, (*shared, *summed, *columns))
    other.reshape([*batch, depth, second.size(columns)])
    chain.transpose(first.labels, (*shared, *rows, *summed))
    chain.reshape([*batch, first.size(rows), depth])
    chain.combine("MatMul", other.write(second.tensor), [*batch, first.size(rows), second.size(columns)])
    chain.reshape([*batch, *first.sizes(rows), *second.sizes(columns)])
    chain.transpose((*shared, *rows, *columns), result.labels)
    chain.reshape(result.shape)
    chain.write(first.tensor, result.tensor)


def _parts(first: Operand, second: Operand, result: Result) -> tuple[Labels, Labels, Labels, Labels]:
    """Shared, summed, the first's own and the second's own labels."""
    both = tuple(label for label in first.labels if label in second.labels)
    return (
        tuple(label for label in both if label in result.labels),
        tuple(label for label in both if label not in result.labels),
        tuple(label for label in first.labels if label not in both),
        tuple(label for label in second.labels if label not in both),
    )


def _matrix_product(chain: Chain, data: Operand, weight: Operand, parts: tuple[Labels, Labels, Labels]) -> Labels:
    kept, summed, new = parts
    front, depth, columns = data.sizes(kept) or [1], data.size(summed), weight.size(new)
    chain.reshape([*front, depth])
    matrix = _arranged(weight, (*summed, *new)).reshape(depth, columns)
    chain.combine("MatMul", chain.editor.add_constant(f"{chain.name}/weight", matrix), [*front, columns])
    chain.reshape([*data.sizes(kept), *weight.sizes(new)])
    return (*kept, *new)


def _convolution(chain: Chain, data: Operand, weight: Operand, parts: tuple[Labels, Labels, Labels, Labels]) -> Labels:
    shared, summed, kept, new = parts
    before = _in_front(data.labels, (*shared, *summed))
    if before is None:
        before = 0
        chain.transpose(data.labels, (*shared, *summed, *kept))
    batch, positions = kept[:before], kept[before:]
    groups, depth, channels = data.size(shared), data.size(summed), data.size(shared) * weight.size(new)
    chain.reshape([data.size(batch), groups * depth, data.size(positions)])
    matrix = _arranged(weight, (*shared, *new, *summed)).reshape(channels, depth, 1)
    sizes = [data.size(batch), channels, data.size(positions)]
    stored = chain.editor.add_constant(f"{chain.name}/weight", matrix)
    chain.combine("Conv", stored, sizes, group=groups, kernel_shape=[1])
    chain.reshape([*data.sizes((*batch, *shared)), *weight.sizes(new), *data.sizes(positions)])
    return (*batch, *shared, *new, *positions)


def _in_front(labels: Labels, block: Labels) -> int | None:
    """How many labels stand before ``block`` where it stands in one piece with positions behind it; else None."""
    starts = range(len(labels) - len(block))
    return next((start for start in starts if labels[start : start + len(block)] == block), None)


def _arranged(weight: Operand, labels: Labels) -> Array:
    assert weight.value is not None
    value = weight.value.reshape(weight.shape)
    return np.ascontiguousarray(value.transpose([weight.labels.index(label) for label in labels]))


def _align(chain: Chain, operand: Operand, labels: Labels) -> Chain:
    """The operand's axes in the order of ``labels``, with size 1 where it has none."""
    chain.transpose(operand.labels, tuple(label for label in labels if label in operand.labels))
    chain.reshape([operand.size((label,)) if label in operand.labels else 1 for label in labels])
    return chain


def _common(first: Operand, second: Operand, labels: Labels) -> list[int]:
    return [(first if label in first.labels else second).size((label,)) for label in labels]
