"""Room ``fixedpoint``: linear Resize. One group enters, its output tensor in integers leaves.

Along one axis an output is (1 - f) x[i] + f x[i + 1] at the position i + f in the input, clipped to it; f is rational,
so D times the output is an integer, D the common denominator of the axis. By powers of two every weight is a multiple
of 2^-t, and the runtime's own Resize is exact in float32; any other linear Resize is a product with a matrix of
integers for each axis. Positions: onnx.ai, operator Resize, coordinate_transformation_mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor, lcm, prod

import numpy as np
import onnx

from npubake.fixedpoint.arithmetic import FLOAT32_EXACT, FLOAT64_EXACT, Array
from npubake.fixedpoint.kernels.bounds import within
from npubake.fixedpoint.kernels.pooling import finish_average
from npubake.fixedpoint.lowering import Lowering, NoIntegerKernelError, take_apart
from npubake.fixedpoint.requantise import Accumulator
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits

_DYADIC = ("half_pixel", "asymmetric", "pytorch_half_pixel")
_MODES = (*_DYADIC, "align_corners", "half_pixel_symmetric")
_MOST = 2**12  # the largest denominator of a scale that is given as float32, such as 1.3333334


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A resized axis: its place, both sizes, and new / old as the positions are computed with."""

    place: int
    old: int
    new: int
    scale: Fraction


def lower_resize(lowering: Lowering, group: FusionGroup) -> None:
    """rhe(m * acc / (n * D)), acc = D times the interpolation of q - zp."""
    fused = take_apart(lowering, group, ("Resize",))
    node, source, target = fused.anchor, fused.anchor.input[0], group.outputs[0]
    mode = attribute(node, "coordinate_transformation_mode", "half_pixel")
    if attribute(node, "mode", "nearest") != "linear" or mode not in _MODES:
        raise NoIntegerKernelError(f"Resize {attribute(node, 'mode', 'nearest')} with {mode}")
    if any(attribute(node, name, 0) for name in ("antialias", "exclude_outside", "axes")):
        raise NoIntegerKernelError("Resize with antialias, exclude_outside or axes")
    axes = _axes(lowering, node, target)
    reach = max(map(abs, limits(lowering.forms.parameters(source))))
    bits = _dyadic_bits(mode, axes)
    if bits is not None and reach * 2**bits < FLOAT32_EXACT:
        accumulator, parts = _resized(lowering, node, target, (reach, bits)), 2**bits
    else:
        accumulator, parts = _multiplied(lowering, node, target, (mode, reach), axes)
    finish_average(lowering, group, fused, accumulator, np.array([parts]))


def _resized(lowering: Lowering, node: onnx.NodeProto, target: str, sizes: tuple[int, int]) -> Accumulator:
    """The runtime's own Resize times 2^t."""
    reach, bits = sizes
    writer = lowering.writer
    constants = [name and writer.keep_constant(lowering.initializers[name]) for name in node.input[1:]]
    copy = writer.unique(f"{target}/interpolated")
    writer.copy_node(node, [lowering.forms.centred(node.input[0]), *constants], [copy])
    value = writer.node("Mul", [copy, writer.constant(np.float32(2**bits), f"{target}/fraction")], target)
    return Accumulator(name=value, dtype="float32", bound=reach * 2**bits)


def _multiplied(
    lowering: Lowering, node: onnx.NodeProto, target: str, asked: tuple[str, int], axes: list[Axis]
) -> tuple[Accumulator, int]:
    """A matrix for each axis, the last one first; and the product of their denominators."""
    mode, reach = asked
    writer, rank = lowering.writer, len(lowering.shape(target))
    if any(axis.place < rank - 2 for axis in axes):
        raise NoIntegerKernelError("linear Resize, by no power of two, of other axes than the last two")
    matrices = {axis.place: _matrix(mode, axis) for axis in axes}
    parts = prod(denominator for _, denominator in matrices.values())
    bound = reach * parts
    within(bound, FLOAT64_EXACT, "float64 sum")
    wide = bound >= FLOAT32_EXACT
    value = lowering.forms.centred(node.input[0])
    if wide:
        value = writer.widened(value, target)
    for place, (matrix, _) in sorted(matrices.items(), reverse=True):
        last = place == rank - 1
        stored = (matrix.T if last else matrix).astype(np.float64 if wide else np.float32)
        weights = writer.constant(np.ascontiguousarray(stored), f"{target}/interpolation")
        value = writer.node("MatMul", [value, weights] if last else [weights, value], target)
    return Accumulator(name=value, dtype="float64" if wide else "float32", bound=bound), parts


def _axes(lowering: Lowering, node: onnx.NodeProto, target: str) -> list[Axis]:
    """Axes whose size or scale is another than 1."""
    before, after = lowering.shape(node.input[0]), lowering.shape(target)
    given = lowering.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    found = []
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        scale = Fraction(new, old) if given is None or not given.size else _simplest(float(given[place]))
        if scale != 1 or new != old:
            found.append(Axis(place=place, old=old, new=new, scale=scale))
    return found


def _simplest(scale: float) -> Fraction:
    """The fraction that was meant by a scale in float32."""
    simple = Fraction(scale).limit_denominator(_MOST)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


def _dyadic_bits(mode: str, axes: list[Axis]) -> int | None:
    """t such that every weight is a multiple of 2^-t; None where weights are no such numbers."""
    if mode not in _DYADIC:
        return None
    bits = 0
    for axis in axes:
        over, under = axis.scale.numerator, axis.scale.denominator
        if over & (over - 1) or under & (under - 1) or (mode == "pytorch_half_pixel" and axis.new == 1):
            return None
        bits += max(over.bit_length() - 1, 0) + 1
    return bits


def _matrix(mode: str, axis: Axis) -> tuple[Array, int]:
    """Integers [new, old] and their denominator."""
    rows = []
    for index in range(axis.new):
        place = min(max(_position(mode, axis, index), Fraction(0)), Fraction(axis.old - 1))
        rows.append((floor(place), place - floor(place)))
    denominator = lcm(*(part.denominator for _, part in rows))
    matrix = np.zeros((axis.new, axis.old), np.int64)
    for index, (first, part) in enumerate(rows):
        matrix[index, first] += int((1 - part) * denominator)
        if part:
            matrix[index, first + 1] += int(part * denominator)
    return matrix, denominator


def _position(mode: str, axis: Axis, index: int) -> Fraction:
    """Where in the input output ``index`` lies."""
    half = Fraction(1, 2)
    if mode == "align_corners":
        return Fraction(index * (axis.old - 1), axis.new - 1) if axis.new > 1 else Fraction(0)
    if mode == "asymmetric":
        return index / axis.scale
    if mode == "pytorch_half_pixel" and axis.new == 1:
        return Fraction(0)
    centre = (index + half) / axis.scale - half
    if mode == "half_pixel_symmetric":
        return centre + Fraction(axis.old, 2) * (1 - axis.new / (axis.old * axis.scale))
    return centre
