"""Room ``fixedpoint``: Conv and ConvTranspose. One group enters, its output tensor in integers leaves.

acc[c] = sum w[c, i] * (q[i] - zp) + b[c], q_out = clamp(zp_out + rhe(acc[c] / D[c])); padding counts as zero point.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npubake.errors import Fault, StageError
from npubake.fixedpoint.arithmetic import FLOAT32_EXACT, FLOAT64_EXACT, INT32_LIMIT, accumulator_bound
from npubake.fixedpoint.kernels.weights import IntegerWeights, finish_weighted, integer_weights, within
from npubake.fixedpoint.lowering import Fused, Lowering, take_apart
from npubake.fixedpoint.requantise import Accumulator, clamp_limits, clip_quantized
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits

SPACING_256 = np.float32(1.5 * 2**31)
DIVISOR_LIMIT = 16384  # an odd D below: RNE(fl32(acc * fl32(1 / D))) is exact for 8-bit outputs


def lower_convolution(lowering: Lowering, group: FusionGroup) -> None:
    """Conv: QLinearConv uint8 x uint8, or a float32 Conv on integers, or ConvInteger, as the bounds allow."""
    fused = take_apart(lowering, group, ("Conv",), fuses_add=True)
    constants = integer_weights(lowering, group, fused, channel_axis=0)
    source, target = fused.anchor.input[0], group.outputs[0]
    facts = lowering.forms.parameters(source)
    if facts.dtype != "uint8":
        _wide_convolution(lowering, group, fused, constants)
        return
    low, high = limits(facts)
    bound = accumulator_bound(constants.weights, constants.bias, low, high)
    depthwise = constants.weights.shape[1] == 1 and attribute(fused.anchor, "group", 1) > 1
    plain = not lowering.parameters.groups[group.name].accumulator_output
    to_bytes = plain and lowering.forms.parameters(target).dtype == "uint8" and constants.weights.ndim == 4
    if to_bytes and bound < INT32_LIMIT and not (depthwise and bound < FLOAT32_EXACT):
        _qlinear_convolution(lowering, group, fused, constants, bound)
    elif bound < FLOAT32_EXACT:
        name = _float_convolution(lowering, fused.anchor, constants, lowering.forms.centred(source), with_bias=True)
        accumulator = Accumulator(name=name, dtype="float32", bound=bound, kernel="Conv float32 on integers")
        finish_weighted(lowering, group, fused, constants, accumulator)
    else:
        within(group.name, bound, INT32_LIMIT, "int32 accumulator")
        name = _integer_convolution(
            lowering, fused.anchor, constants, lowering.forms.quantized(source), facts.zero_point
        )
        bias = lowering.writer.constant(constants.bias_along(1, 4).astype(np.int32), f"{target}/bias")
        name = lowering.writer.node("Add", [name, bias], target)
        accumulator = Accumulator(name=name, dtype="int32", bound=bound, kernel="ConvInteger uint8 x uint8")
        finish_weighted(lowering, group, fused, constants, accumulator)


def lower_transposed_convolution(lowering: Lowering, group: FusionGroup) -> None:
    """ConvTranspose: float32 on integers; input channels (and bytes of 16-bit inputs) in parts within 2**24."""
    fused = take_apart(lowering, group, ("ConvTranspose",), fuses_add=True)
    groups = attribute(fused.anchor, "group", 1)
    constants = integer_weights(lowering, group, fused, channel_axis=1, groups=groups)
    source, target, writer = fused.anchor.input[0], group.outputs[0], lowering.writer
    low, high = limits(lowering.forms.parameters(source))
    bound = accumulator_bound(constants.rows(groups), constants.bias, low, high)
    if bound < FLOAT32_EXACT:
        name = _float_convolution(lowering, fused.anchor, constants, lowering.forms.centred(source), with_bias=True)
        accumulator = Accumulator(name=name, dtype="float32", bound=bound, kernel="ConvTranspose float32 on integers")
        finish_weighted(lowering, group, fused, constants, accumulator)
        return
    within(group.name, bound, FLOAT64_EXACT, "float64 sum")
    total = ""
    for part, part_low, part_high in float_parts(lowering, source, target):
        for weights in _channel_parts(constants, groups, part_low, part_high):
            piece = _float_convolution(lowering, fused.anchor, weights, part, with_bias=False)
            total = add_scaled(lowering, target, total, piece, 1)
    bias = writer.constant(constants.bias_along(1, len(lowering.shape(target))).astype(np.float64), f"{target}/bias")
    total = writer.node("Add", [total, bias], target)
    accumulator = Accumulator(
        name=total, dtype="float64", bound=bound, kernel="ConvTranspose float32 in parts, float64 sum"
    )
    finish_weighted(lowering, group, fused, constants, accumulator)


def float_parts(lowering: Lowering, source: str, target: str) -> list[tuple[str, int, int]]:
    """float32 tensors whose sum is the centred source, with their limits, counted in units of the tensor.

    8 bits: one part. 16 bits: the nearest multiple of 256 (the unit of that part) and the rest, both within -128..128:
    adding and subtracting 1.5 * 2**31, where float32 has a spacing of 256, rounds to such a multiple.
    """
    low, high = limits(lowering.forms.parameters(source))
    centred, writer = lowering.forms.centred(source), lowering.writer
    if lowering.forms.parameters(source).dtype == "uint8":
        return [(centred, low, high)]
    magic = writer.constant(SPACING_256, "spacing_256")
    upper = writer.node("Sub", [writer.node("Add", [centred, magic], target), magic], target)
    lower = writer.node("Sub", [centred, upper], target)
    return [(upper, -128, 128), (lower, -128, 128)]


def byte_parts(lowering: Lowering, source: str, target: str) -> list[tuple[int, str, int]]:
    """(factor, uint8 tensor, zero point) with source = sum factor * (tensor - zero point): high and low byte."""
    centred, writer = lowering.forms.centred(source), lowering.writer
    scaled = writer.node("Mul", [centred, writer.constant(np.float32(1 / 256), "one_256th")], target)
    upper = writer.node("Floor", [scaled], target)
    shifted = writer.node("Mul", [upper, writer.constant(np.float32(256), "factor_256")], target)
    lower = writer.node("Sub", [centred, shifted], target)
    offset = writer.node("Add", [upper, writer.constant(np.float32(128), "byte_offset")], target)
    high, low = (writer.node("Cast", [name], target, to=TensorProto.UINT8) for name in (offset, lower))
    return [(256, high, 128), (1, low, 0)]


def add_scaled(lowering: Lowering, target: str, total: str, piece: str, factor: int) -> str:
    """total + factor * piece in float64; ``total`` may be ''."""
    writer = lowering.writer
    piece = writer.node("Cast", [piece], target, to=TensorProto.DOUBLE)
    if factor != 1:
        piece = writer.node("Mul", [piece, writer.constant(np.float64(factor), f"factor_{factor}_f64")], target)
    return writer.node("Add", [total, piece], target) if total else piece


def _qlinear_convolution(
    lowering: Lowering, group: FusionGroup, fused: Fused, constants: IntegerWeights, bound: int
) -> None:
    source, target, writer = fused.anchor.input[0], group.outputs[0], lowering.writer
    facts, out = lowering.forms.parameters(source), lowering.forms.parameters(target)
    channels = len(constants.bias)
    bounds = clamp_limits(out, fused.low, fused.high)
    clamped = bounds != limits(out)
    _check_divisors(group, constants)
    multipliers = (1.0 / np.array(constants.divisors, np.float64)).astype(np.float32)
    one = writer.constant(np.float32(1), "one")
    inputs = [
        lowering.forms.quantized(source),
        one,
        writer.constant(np.uint8(facts.zero_point), f"{source}/zero_point"),
        writer.constant((constants.weights + 128).astype(np.uint8), f"{target}/weights"),
        writer.constant(multipliers, f"{target}/multipliers"),
        writer.constant(np.full(channels, 128, np.uint8), f"{target}/weight_zero_point"),
        one,
        writer.constant(np.uint8(out.zero_point), f"{target}/zero_point"),
        writer.constant(constants.bias.astype(np.int32), f"{target}/bias"),
    ]
    name = writer.unique(f"{target}/unclamped" if clamped else f"{target}/quantized")
    writer.node("QLinearConv", inputs, target, name, **geometry(fused.anchor))
    if clamped:
        clip_quantized(lowering, target, name, bounds)
    else:
        lowering.forms.put(target, "quantized", name)
    exact = (
        f"|acc| <= {bound} < 2^31; D odd, <= {max(constants.divisors)} < 16384: 255.5 * 2^-23 < 1 / (2 D), "
        "so that multiplying by fl32(1 / D) rounds as the exact quotient"
    )
    lowering.certify(group, "QLinearConv uint8 x uint8", bound, exact)


def _check_divisors(group: FusionGroup, constants: IntegerWeights) -> None:
    """Raise StageError unless every divisor is on the grid that the proof needs."""
    bad = [divisor for divisor in constants.divisors if divisor % 2 == 0 or not 0 < divisor < DIVISOR_LIMIT]
    if bad or len(constants.divisors) != len(constants.bias):
        raise StageError(
            Fault(
                what=f"{len(constants.divisors)} divisors for {len(constants.bias)} channels, off the grid: {bad[:3]}",
                where=group.name,
                hint="run calibrate again: a group with an integer output has one odd divisor a channel",
            )
        )


def _wide_convolution(lowering: Lowering, group: FusionGroup, fused: Fused, constants: IntegerWeights) -> None:
    """16-bit input: two parts of 8 bits, joined in float64."""
    source, target = fused.anchor.input[0], group.outputs[0]
    bound = accumulator_bound(constants.weights, constants.bias, -32768, 32767)
    within(group.name, bound, FLOAT64_EXACT, "float64 sum")
    part_bound = accumulator_bound(constants.weights, np.zeros_like(constants.bias), -128, 128)
    biased = part_bound + int(np.abs(constants.bias).max()) < FLOAT32_EXACT
    total = ""
    if part_bound < FLOAT32_EXACT:
        kernel = f"Conv float32 on two parts of 8 bits (each <= {part_bound} < 2^24), float64 sum"
        for number, (part, _, _) in enumerate(float_parts(lowering, source, target)):
            piece = _float_convolution(lowering, fused.anchor, constants, part, with_bias=biased and number == 1)
            total = add_scaled(lowering, target, total, piece, 1)
    else:
        byte_bound = accumulator_bound(constants.weights, np.zeros_like(constants.bias), -128, 255)
        within(group.name, byte_bound, INT32_LIMIT, "int32 accumulator")
        kernel = f"ConvInteger uint8 x uint8 on high and low byte (each <= {byte_bound} < 2^31), float64 sum"
        for factor, part, zero_point in byte_parts(lowering, source, target):
            piece = _integer_convolution(lowering, fused.anchor, constants, part, zero_point)
            total = add_scaled(lowering, target, total, piece, factor)
    if np.any(constants.bias) and not (biased and part_bound < FLOAT32_EXACT):
        rank = constants.weights.ndim
        bias = lowering.writer.constant(constants.bias_along(1, rank).astype(np.float64), f"{target}/bias_f64")
        total = lowering.writer.node("Add", [total, bias], target)
    accumulator = Accumulator(name=total, dtype="float64", bound=bound, kernel=kernel)
    finish_weighted(lowering, group, fused, constants, accumulator)


def _float_convolution(
    lowering: Lowering, anchor: onnx.NodeProto, constants: IntegerWeights, source: str, with_bias: bool
) -> str:
    writer, target = lowering.writer, anchor.output[0]
    inputs = [source, writer.constant(constants.weights.astype(np.float32), f"{target}/weights_f32")]
    if with_bias:
        inputs.append(writer.constant(constants.bias.astype(np.float32), f"{target}/bias_f32"))
    return writer.node(anchor.op_type, inputs, target, **geometry(anchor))


def _integer_convolution(
    lowering: Lowering, anchor: onnx.NodeProto, constants: IntegerWeights, source: str, zero_point: int
) -> str:
    writer, target = lowering.writer, anchor.output[0]
    inputs = [
        source,
        writer.constant((constants.weights + 128).astype(np.uint8), f"{target}/weights"),
        writer.constant(np.uint8(zero_point), f"{target}/byte_zero_point"),
        writer.constant(np.uint8(128), f"{target}/weight_zero_point"),
    ]
    return writer.node("ConvInteger", inputs, target, **geometry(anchor))


def _channel_parts(constants: IntegerWeights, groups: int, low: int, high: int) -> list[IntegerWeights]:
    """Weights with all but some input channels zeroed, each within 2**24, together the whole."""
    count, parts, first = constants.weights.shape[0], [], 0
    while first < count:
        last = count
        while True:
            piece = np.zeros_like(constants.weights)
            piece[first:last] = constants.weights[first:last]
            part = constants.with_weights(piece)
            if accumulator_bound(part.rows(groups), np.zeros_like(constants.bias), low, high) < FLOAT32_EXACT:
                break
            last = first + max(1, (last - first) // 2)
        parts.append(part)
        first = last
    return parts


def geometry(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes of a convolution, unchanged."""
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
