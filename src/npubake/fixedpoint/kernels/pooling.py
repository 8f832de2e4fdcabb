"""Room ``fixedpoint``: averages, reductions, linear Resize. One group enters, its output tensor in integers leaves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from npubake.fixedpoint.arithmetic import (
    FLOAT32_EXACT,
    FLOAT64_EXACT,
    Array,
    precision_of,
)
from npubake.fixedpoint.kernels.bounds import bounded_ratio, within
from npubake.fixedpoint.lowering import Fused, Lowering, NoIntegerKernelError, take_apart
from npubake.fixedpoint.requantise import Accumulator, Scaling, requantise
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits


def lower_average(lowering: Lowering, group: FusionGroup) -> None:
    """rhe(m * S / (n * count)), m / n for si / so; S the sum of q - zp over the window, count its elements."""
    fused = take_apart(lowering, group, ("GlobalAveragePool", "ReduceMean", "AveragePool"))
    source = fused.anchor.input[0]
    if fused.anchor.op_type == "AveragePool":
        accumulator, counts = _window_sums(lowering, group, fused.anchor)
    else:
        axes, keep = reduced_axes(lowering, fused.anchor)
        count = prod(lowering.shape(source)[axis] for axis in axes)
        accumulator, counts = _sum(lowering, group, source, axes, keep), np.array([count])
    _finish(lowering, group, fused, accumulator, counts)


def lower_reduce(lowering: Lowering, group: FusionGroup) -> None:
    """Sum, largest or smallest of q - zp, then rhe(acc * m / n), m / n for si / so."""
    fused = take_apart(lowering, group, ("ReduceSum", "ReduceMax", "ReduceMin"))
    source = fused.anchor.input[0]
    axes, keep = reduced_axes(lowering, fused.anchor)
    if fused.anchor.op_type == "ReduceSum":
        accumulator = _sum(lowering, group, source, axes, keep)
    else:
        named = lowering.writer.constant(np.array(axes, np.int64), f"{group.outputs[0]}/axes")
        inputs = [lowering.forms.centred(source), named]
        name = lowering.writer.node(fused.anchor.op_type, inputs, group.outputs[0], keepdims=keep)
        reach = max(map(abs, limits(lowering.forms.parameters(source))))
        accumulator = Accumulator(name=name, dtype="float32", bound=reach)
    _finish(lowering, group, fused, accumulator, np.array([1]))


def lower_resize(lowering: Lowering, group: FusionGroup) -> None:
    """Linear Resize by powers of two: all weights are multiples of 2^-t, so float32 holds every product and sum."""
    fused = take_apart(lowering, group, ("Resize",))
    node, source, target, writer = fused.anchor, fused.anchor.input[0], group.outputs[0], lowering.writer
    bits = _dyadic_bits(lowering, node, target)
    reach = max(map(abs, limits(lowering.forms.parameters(source))))
    bound = reach * 2**bits
    if bound >= FLOAT32_EXACT:
        raise NoIntegerKernelError(f"linear Resize whose products need {bound.bit_length()} bits")
    constants = [name and writer.keep_constant(lowering.initializers[name]) for name in node.input[1:]]
    copy = writer.unique(f"{target}/interpolated")
    writer.copy_node(node, [lowering.forms.centred(source), *constants], [copy])
    value = writer.node("Mul", [copy, writer.constant(np.float32(2**bits), f"{target}/fraction")], target)
    accumulator = Accumulator(name=value, dtype="float32", bound=bound)
    _finish(lowering, group, fused, accumulator, np.array([2**bits]))


def reduced_axes(lowering: Lowering, node: onnx.NodeProto) -> tuple[list[int], int]:
    """Non-negative axes of a reduction and its keepdims."""
    rank = len(lowering.shape(node.input[0]))
    if node.op_type == "GlobalAveragePool":
        return list(range(2, rank)), 1
    axes = attribute(node, "axes", None)
    if axes is None and len(node.input) > 1 and node.input[1]:
        constant = lowering.constant(node.input[1])
        if constant is None:
            raise NoIntegerKernelError("computed axes")
        axes = constant.tolist()
    if not axes:
        if attribute(node, "noop_with_empty_axes", 0):
            raise NoIntegerKernelError("a reduction over no axis")
        axes = range(rank)
    return sorted(axis % rank for axis in axes), int(attribute(node, "keepdims", 1))


def _finish(lowering: Lowering, group: FusionGroup, fused: Fused, accumulator: Accumulator, counts: Array) -> None:
    target = group.outputs[0]
    facts, out = lowering.forms.parameters(fused.anchor.input[0]), lowering.forms.parameters(target)
    ratio = Fraction(facts.scale) / Fraction(out.scale)
    multiplier, divisor = bounded_ratio(ratio, precision_of(facts, out), accumulator.bound)
    scaling = Scaling(multiplier=multiplier, divisor=divisor * counts, low=fused.low, high=fused.high)
    exact = requantise(lowering, target, accumulator, scaling)
    kernel = f"{fused.anchor.op_type} {accumulator.dtype} on integers, m = {multiplier}, n = {divisor}"
    lowering.certify(group, kernel, accumulator.bound, exact)


def _sum(lowering: Lowering, group: FusionGroup, source: str, axes: Sequence[int], keep: int) -> Accumulator:
    writer, target = lowering.writer, group.outputs[0]
    count = prod(lowering.shape(source)[axis] for axis in axes)
    bound = count * max(map(abs, limits(lowering.forms.parameters(source))))
    within(bound, FLOAT64_EXACT, "float64 sum")
    value = lowering.forms.centred(source)
    wide = bound >= FLOAT32_EXACT
    if wide:
        value = writer.node("Cast", [value], target, to=TensorProto.DOUBLE)
    named = writer.constant(np.array(axes, np.int64), f"{target}/axes")
    name = writer.node("ReduceSum", [value, named], target, keepdims=keep)
    return Accumulator(name=name, dtype="float64" if wide else "float32", bound=bound)


def _window_sums(lowering: Lowering, group: FusionGroup, node: onnx.NodeProto) -> tuple[Accumulator, Array]:
    """Sums over windows by a depthwise Conv of ones, and how many elements each window counts."""
    source, target, writer = node.input[0], group.outputs[0], lowering.writer
    sizes, results = lowering.shape(source), lowering.shape(target)
    kernel = list(attribute(node, "kernel_shape", []))
    strides = list(attribute(node, "strides", [1] * len(kernel)))
    dilations = list(attribute(node, "dilations", [1] * len(kernel)))
    before, after = _pads(node, sizes[2:], kernel, strides, dilations)
    counts = np.ones([1] * len(sizes), np.int64)
    extra = []
    for axis, size in enumerate(sizes[2:]):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        starts = np.arange(results[2 + axis]) * strides[axis] - before[axis]
        taps = starts[:, None] + np.arange(kernel[axis]) * dilations[axis]
        padded = attribute(node, "count_include_pad", 0)
        inside = (taps >= -before[axis]) & (taps < size + after[axis]) if padded else (taps >= 0) & (taps < size)
        counts = counts * inside.sum(axis=1).reshape([-1 if place == 2 + axis else 1 for place in range(len(sizes))])
        extra.append(max(0, int(starts[-1]) + span - size))
    bound = prod(kernel) * max(map(abs, limits(lowering.forms.parameters(source))))
    if bound >= FLOAT32_EXACT:
        raise NoIntegerKernelError(f"AveragePool over {prod(kernel)} elements")
    ones = writer.constant(np.ones([sizes[1], 1, *kernel], np.float32), f"{target}/ones")
    geometry: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    inputs = [lowering.forms.centred(source), ones]
    name = writer.node("Conv", inputs, target, group=sizes[1], pads=[*before, *extra], **geometry)
    return Accumulator(
        name=name, dtype="float32", bound=bound
    ), counts if counts.min() < counts.max() else counts.ravel()[:1]


def _pads(
    node: onnx.NodeProto, sizes: Sequence[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """Elements of padding before and after each spatial axis."""
    mode = attribute(node, "auto_pad", "NOTSET")
    rank = len(kernel)
    if mode in ("NOTSET", "VALID"):
        pads = list(attribute(node, "pads", [0] * 2 * rank)) if mode == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    totals = [
        max(0, (ceil(size / stride) - 1) * stride + (length - 1) * dilation + 1 - size)
        for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _dyadic_bits(lowering: Lowering, node: onnx.NodeProto, target: str) -> int:
    """t such that every weight is a multiple of 2^-t. Raises NoIntegerKernelError where weights are no such numbers."""
    mode = attribute(node, "coordinate_transformation_mode", "half_pixel")
    if attribute(node, "mode", "nearest") != "linear" or mode not in ("half_pixel", "asymmetric", "pytorch_half_pixel"):
        raise NoIntegerKernelError(f"Resize {attribute(node, 'mode', 'nearest')} with {mode}")
    if attribute(node, "antialias", 0) or attribute(node, "exclude_outside", 0) or attribute(node, "axes", None):
        raise NoIntegerKernelError("Resize with antialias, exclude_outside or axes")
    before, after = lowering.shape(node.input[0]), lowering.shape(target)
    bits = 0
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        scale = Fraction(new, old)
        if len(node.input) > 2 and node.input[2]:
            scales = lowering.constant(node.input[2])
            if scales is not None and scales.size:
                scale = Fraction(float(scales[axis]))
        if scale == 1:
            continue
        if scale.numerator & (scale.numerator - 1) or scale.denominator & (scale.denominator - 1):
            raise NoIntegerKernelError(f"linear Resize by {float(scale):g}, no power of two")
        if mode == "pytorch_half_pixel" and new == 1:
            raise NoIntegerKernelError("pytorch_half_pixel to one element")
        bits += max(scale.numerator.bit_length() - 1, 0) + 1
    return bits
