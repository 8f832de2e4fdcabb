"""tuning: a weighted group as a matrix product: output = W @ columns + bias, one product for each conv group.

``W`` is [groups, rows, columns]: groups of the convolution, output channels of one group, input channels of one group
times kernel positions. ``columns`` (im2col) holds what one output position reads, zero where the kernel lies on
padding. A ConvTranspose reads, at output position p and tap t, the input j with p = j * stride - pad + t * dilation
where there is one, else zero (ONNX operator specification, ConvTranspose).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.graph.editing import attribute
from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary

Operator = Literal["conv", "conv_transpose", "linear"]
Wide = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixForm:
    """One weighted group. tensor: the computed tensor that it reads; weights: the initialiser's name.

    weight_shape: of the initialiser; transposed: linear weights that are stored [columns, rows];
    input_shape, output_shape: of tensor and of the anchor node's output; kernel, strides, begins (pads at the low end)
    and dilations: one for each spatial axis, empty for ``linear``.
    """

    group: str
    tensor: str
    weights: str
    operator: Operator
    weight_shape: tuple[int, ...]
    transposed: bool
    groups: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Output channels of one group."""
        if self.operator == "linear":
            return self.weight_shape[1 if self.transposed else 0]
        return self.weight_shape[1] if self.operator == "conv_transpose" else self.weight_shape[0] // self.groups

    @property
    def columns(self) -> int:
        """Input channels of one group times kernel positions."""
        return prod(self.weight_shape) // (self.groups * self.rows)

    @property
    def positions(self) -> int:
        """Output positions of one example: batch times spatial size, or the rows of a linear input."""
        if self.operator == "linear":
            return prod(self.input_shape[:-1])
        return self.output_shape[0] * prod(self.output_shape[2:])

    @property
    def input_axis(self) -> int:
        """The axis of ``tensor`` along which its input channels lie."""
        return len(self.input_shape) - 1 if self.operator == "linear" else 1

    def to_matrix(self, weights: NDArray[Any]) -> NDArray[Any]:
        """An array in the initialiser's shape as [groups, rows, columns]; dtype kept."""
        if self.operator == "linear":
            return (weights.T if self.transposed else weights)[None]
        if self.operator == "conv":
            return weights.reshape(self.groups, self.rows, self.columns)
        blocks = weights.reshape(self.groups, -1, self.rows, prod(self.kernel))
        return blocks.swapaxes(1, 2).reshape(self.groups, self.rows, self.columns)

    def from_matrix(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """[groups, rows, columns] in the initialiser's shape; dtype kept."""
        if self.operator == "linear":
            return np.ascontiguousarray(matrix[0].T if self.transposed else matrix[0])
        if self.operator == "conv":
            return matrix.reshape(self.weight_shape)
        blocks = matrix.reshape(self.groups, self.rows, -1, prod(self.kernel))
        return blocks.swapaxes(1, 2).reshape(self.weight_shape)

    def by_row(self, channels: NDArray[Any]) -> NDArray[Any]:
        """One value for each channel of the initialiser's channel axis as [groups, rows].

        ConvTranspose: one value serves a channel of every group (``quant.operands``), unless there is one for each.
        """
        if channels.size == self.groups * self.rows:
            return channels.reshape(self.groups, self.rows)
        return np.broadcast_to(channels.reshape(1, self.rows), (self.groups, self.rows))


def matrix_forms(model: onnx.ModelProto, summary: GraphSummary, groups: Iterable[str]) -> dict[str, MatrixForm]:
    """The form of each named group, in the order asked. StageError naming every group that has no constant weights."""
    nodes = {node.name: node for node in model.graph.node}
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    known = {group.name: group for group in summary.groups if group.kind in WEIGHTED_KINDS}
    names = list(groups)
    faults = [
        Fault(what="this group has no constant weights", where=name, hint="name a conv, conv_transpose or linear group")
        for name in names
        if name not in known
    ]
    if faults:
        raise StageError(*faults)
    return {name: _form(known[name], nodes, shapes, summary) for name in names}


def _form(
    group: FusionGroup, nodes: dict[str, onnx.NodeProto], shapes: dict[str, tuple[int, ...]], summary: GraphSummary
) -> MatrixForm:
    inside = [nodes[name] for name in group.nodes]
    node = next(one for one in inside if len(one.input) > 1 and one.input[1] in shapes and one.op_type in _OPERATORS)
    operator, shape = _OPERATORS[node.op_type], shapes[node.input[1]]
    source, made = summary.tensors[node.input[0]].shape, summary.tensors[node.output[0]].shape
    window = _Window() if operator == "linear" else _window(node, shape[2:], source[2:], made[2:])
    return MatrixForm(
        group=group.name,
        tensor=node.input[0],
        weights=node.input[1],
        operator=operator,
        weight_shape=shape,
        transposed=node.op_type == "MatMul" or (node.op_type == "Gemm" and not attribute(node, "transB", 0)),
        groups=1 if operator == "linear" else int(attribute(node, "group", 1)),
        input_shape=source,
        output_shape=made,
        kernel=window.kernel,
        strides=window.strides,
        begins=window.begins,
        dilations=window.dilations,
    )


_OPERATORS: dict[str, Operator] = {
    "Conv": "conv",
    "ConvTranspose": "conv_transpose",
    "Gemm": "linear",
    "MatMul": "linear",
}


@dataclass(frozen=True, slots=True)
class _Window:
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


def _window(node: onnx.NodeProto, kernel: tuple[int, ...], source: tuple[int, ...], made: tuple[int, ...]) -> _Window:
    """Spatial attributes. Where the pads follow from the sizes (auto_pad, output_shape): total pads, the odd one at the
    end for SAME_UPPER, at the beginning for SAME_LOWER; a ConvTranspose with NOTSET puts it at the beginning.
    """
    rank = len(kernel)
    strides = tuple(attribute(node, "strides", [1] * rank))
    dilations = tuple(attribute(node, "dilations", [1] * rank))
    pads = list(attribute(node, "pads", [0] * (2 * rank)))[:rank]
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode == "VALID":
        pads = [0] * rank
    elif mode != "NOTSET" or attribute(node, "output_shape", None) is not None:
        extra = attribute(node, "output_padding", [0] * rank)
        small, large = (made, source) if node.op_type == "Conv" else (source, made)
        for axis in range(rank):
            reach = (kernel[axis] - 1) * dilations[axis] + 1 + extra[axis]
            total = max((small[axis] - 1) * strides[axis] + reach - large[axis], 0)
            pads[axis] = total // 2 if mode == "SAME_UPPER" else total - total // 2
    return _Window(kernel, strides, tuple(pads), dilations)


def chosen_positions(form: MatrixForm, index: int, most: int) -> NDArray[np.int64]:
    """Up to ``most`` output positions of example ``index``, ascending: one from each of equal strata, by a hash.

    The same for every tensor of a form, on every machine. The hash is splitmix64 (Steele, Lea, Flood, *Fast splittable
    pseudorandom number generators*, OOPSLA 2014).
    """
    count = min(most, form.positions)
    edges = np.arange(count + 1, dtype=np.int64) * form.positions // count
    stream = np.uint64(index) * np.uint64(1 << 32) + np.arange(1, count + 1, dtype=np.uint64)
    widths = (edges[1:] - edges[:-1]).astype(np.uint64)
    return edges[:-1] + (_splitmix(stream) % widths).astype(np.int64)


def _splitmix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = values * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def columns_at(form: MatrixForm, values: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """What the output ``positions`` read of ``values`` (the form's input): [groups, columns, positions], dtype kept."""
    if form.operator == "linear":
        return np.ascontiguousarray(values.reshape(-1, form.input_shape[-1])[positions].T)[None]
    channels, spatial = form.input_shape[1], form.input_shape[2:]
    batch, *places = np.unravel_index(positions, (form.output_shape[0], *form.output_shape[2:]))
    taps = np.indices(form.kernel).reshape(len(form.kernel), -1)
    at = np.zeros((taps.shape[1], len(positions)), np.int64)
    inside = np.ones(at.shape, bool)
    for axis, place in enumerate(places):
        where, fits = _read_index(form, axis, taps[axis][:, None], place[None, :])
        fits &= (where >= 0) & (where < spatial[axis])
        inside &= fits
        at = at * spatial[axis] + np.where(fits, where, 0)
    flat = values.reshape(form.input_shape[0], channels, -1)
    read = flat[0][:, at] if form.input_shape[0] == 1 else flat[batch[None, :], :, at].transpose(2, 0, 1)
    read = np.where(inside, read, np.zeros((), values.dtype))
    return read.reshape(form.groups, form.columns, len(positions))


def _read_index(
    form: MatrixForm, axis: int, tap: NDArray[np.int64], place: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Input index along one axis for taps and output places, and whether it is a whole one."""
    reach = tap * form.dilations[axis]
    if form.operator == "conv":
        where = place * form.strides[axis] - form.begins[axis] + reach
        return where, np.ones(where.shape, bool)
    ahead = place + form.begins[axis] - reach
    return ahead // form.strides[axis], ahead % form.strides[axis] == 0
