"""Room ``fixedpoint``: averages and reductions. One group enters, its output tensor in integers leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    finish_average(lowering, group, fused, accumulator, counts)


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
    finish_average(lowering, group, fused, accumulator, np.array([1]))


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


def finish_average(
    lowering: Lowering, group: FusionGroup, fused: Fused, accumulator: Accumulator, counts: Array
) -> None:
    """The group's result from sums over ``counts`` elements (or parts of one) each: rhe(m * acc / (n * count))."""
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
    ones = writer.constant(np.ones([sizes[1], 1, *kernel], np.float32), f"{target}/ones")
    geometry: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}

    def summed(values: str) -> str:
        return writer.node("Conv", [values, ones], target, group=sizes[1], pads=[*before, *extra], **geometry)

    accumulator = _window_sum(lowering, target, source, prod(kernel), summed)
    return accumulator, counts if counts.min() < counts.max() else counts.ravel()[:1]


def _window_sum(lowering: Lowering, target: str, source: str, count: int, summed: Callable[[str], str]) -> Accumulator:
    """Sums of ``count`` elements by ``summed``, float32 in and out. Where float32 does not hold them, those of the
    upper and of the lower 8 bits apart, put together in float64: x = 256 h + l, h in -128..127, l in 0..255.
    """
    writer, centred = lowering.writer, lowering.forms.centred(source)
    bound = count * max(map(abs, limits(lowering.forms.parameters(source))))
    if bound < FLOAT32_EXACT:
        return Accumulator(name=summed(centred), dtype="float32", bound=bound)
    within(256 * count, FLOAT32_EXACT, "float32 sum of halves")
    base = writer.constant(np.float32(256), f"{target}/base")
    upper = writer.node("Floor", [writer.node("Div", [centred, base], target)], target)
    lower = writer.node("Sub", [centred, writer.node("Mul", [upper, base], target)], target)
    wide = [writer.node("Cast", [summed(half)], target, to=TensorProto.DOUBLE) for half in (upper, lower)]
    moved = writer.node("Mul", [wide[0], writer.constant(np.float64(256), f"{target}/wide_base")], target)
    return Accumulator(name=writer.node("Add", [moved, wide[1]], target), dtype="float64", bound=bound)


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
