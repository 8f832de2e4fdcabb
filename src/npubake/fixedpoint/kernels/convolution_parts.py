"""Room ``fixedpoint``: convolutions of 16-bit inputs or wide weights in parts of 8 bits, joined in float64.

x = sum of parts, w = sum of parts; each product of two parts is a convolution within the bounds of float32 or int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npubake.fixedpoint.arithmetic import FLOAT32_EXACT, FLOAT64_EXACT, INT32_LIMIT, Array, accumulator_bound
from npubake.fixedpoint.kernels.bounds import within
from npubake.fixedpoint.kernels.weights import IntegerWeights, finish_weighted
from npubake.fixedpoint.lowering import Fused, Lowering
from npubake.fixedpoint.requantise import Accumulator
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits

SPACING_256 = np.float32(1.5 * 2**31)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatPart:
    """A float32 tensor of multiples of its unit. low, high: its limits, counted in units."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePart:
    """A uint8 tensor: factor * (tensor - zero_point) is a part of the whole."""

    name: str
    zero_point: int
    factor: int


def lower_in_parts(lowering: Lowering, group: FusionGroup, fused: Fused, constants: IntegerWeights, bound: int) -> None:
    """Parts of the input times parts of the weights: by float32 convolutions where all bounds allow, else by
    ConvInteger. bound: of the whole sum, bias included.
    """
    source, target = fused.anchor.input[0], group.outputs[0]
    within(bound, FLOAT64_EXACT, "float64 sum")
    zero = np.zeros_like(constants.bias)
    inputs = [(-128, 128)] * 2 if _is_wide(lowering, source) else [limits(lowering.forms.parameters(source))]
    weights = weight_parts(constants)
    part_bound = max(accumulator_bound(part.weights, zero, *ends) for ends in inputs for _, part in weights)
    biased = False
    if part_bound < FLOAT32_EXACT:
        total, biased = _by_float(lowering, fused.anchor, constants, part_bound)
        kernel = f"Conv float32 in {len(inputs)} x {len(weights)} parts (each <= {part_bound} < 2^24), float64 sum"
    else:
        total, byte_bound, count = _by_bytes(lowering, fused.anchor, constants)
        kernel = f"ConvInteger uint8 x uint8 on {count} pairs of bytes (each <= {byte_bound} < 2^31), float64 sum"
    if np.any(constants.bias) and not biased:
        bias = constants.bias_along(1, constants.weights.ndim).astype(np.float64)
        total = lowering.writer.node("Add", [total, lowering.writer.constant(bias, f"{target}/bias_f64")], target)
    accumulator = Accumulator(name=total, dtype="float64", bound=bound, kernel=kernel)
    finish_weighted(lowering, group, fused, constants, accumulator)


def float_parts(lowering: Lowering, source: str, target: str) -> list[FloatPart]:
    """float32 tensors whose sum is the centred source.

    8 bits: one part. 16 bits: the nearest multiple of 256 (the unit of that part) and the rest, both within -128..128:
    adding and subtracting 1.5 * 2**31, where float32 has a spacing of 256, rounds to such a multiple.
    """
    low, high = limits(lowering.forms.parameters(source))
    centred, writer = lowering.forms.centred(source), lowering.writer
    if not _is_wide(lowering, source):
        return [FloatPart(name=centred, low=low, high=high)]
    magic = writer.constant(SPACING_256, "spacing_256")
    upper = writer.node("Sub", [writer.node("Add", [centred, magic], target), magic], target)
    lower = writer.node("Sub", [centred, upper], target)
    return [FloatPart(name=name, low=-128, high=128) for name in (upper, lower)]


def weight_parts(constants: IntegerWeights) -> list[tuple[int, IntegerWeights]]:
    """(unit, weights in units) whose sum is the whole: one within -255..255, else multiples of 256 and the rest."""
    if np.abs(constants.weights).max(initial=0) <= 255:
        return [(1, constants)]
    upper = (constants.weights + 128) >> 8
    return [(256, constants.with_weights(upper)), (1, constants.with_weights(constants.weights - (upper << 8)))]


def add_scaled(lowering: Lowering, target: str, total: str, piece: str, factor: int) -> str:
    """total + factor * piece in float64; ``total`` may be ''."""
    writer = lowering.writer
    piece = writer.node("Cast", [piece], target, to=TensorProto.DOUBLE)
    if factor != 1:
        piece = writer.node("Mul", [piece, writer.constant(np.float64(factor), f"factor_{factor}_f64")], target)
    return writer.node("Add", [total, piece], target) if total else piece


def float_convolution(
    lowering: Lowering, anchor: onnx.NodeProto, source: str, weights: str, bias: Array | None = None
) -> str:
    """A float32 convolution of ``source`` with the constant ``weights``; bias: integers [C]."""
    writer, target, inputs = lowering.writer, anchor.output[0], [source, weights]
    if bias is not None:
        inputs.append(writer.constant(bias.astype(np.float32), f"{target}/bias_f32"))
    return writer.node(anchor.op_type, inputs, target, **geometry(anchor))


def float_weights(lowering: Lowering, target: str, weights: IntegerWeights, unit: int) -> str:
    """``unit`` times the weights as float32."""
    if unit == 1:
        return weights.stored(lowering, target, "float32")
    return lowering.writer.constant((weights.weights * unit).astype(np.float32), f"{target}/weights_{unit}")


def integer_convolution(
    lowering: Lowering, anchor: onnx.NodeProto, source: BytePart, weights: str, zero_point: int
) -> str:
    """ConvInteger with a uint8 constant whose zero is ``zero_point``."""
    writer, target = lowering.writer, anchor.output[0]
    inputs = [
        source.name,
        weights,
        writer.constant(np.uint8(source.zero_point), f"{target}/byte_zero_point"),
        writer.constant(np.uint8(zero_point), f"{target}/weight_zero_point"),
    ]
    return writer.node("ConvInteger", inputs, target, **geometry(anchor))


def geometry(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes of a convolution, unchanged."""
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def _is_wide(lowering: Lowering, source: str) -> bool:
    return lowering.forms.parameters(source).dtype != "uint8"


def _by_float(
    lowering: Lowering, anchor: onnx.NodeProto, constants: IntegerWeights, part_bound: int
) -> tuple[str, bool]:
    """The sum, and whether the bias is in it: the last product, of the parts with unit 1, takes it where it fits."""
    target = anchor.output[0]
    biased = part_bound + int(np.abs(constants.bias).max(initial=0)) < FLOAT32_EXACT
    parts, total = float_parts(lowering, anchor.input[0], target), ""
    weights = [(unit, float_weights(lowering, target, piece, unit)) for unit, piece in weight_parts(constants)]
    for part in parts:
        for unit, name in weights:
            bias = constants.bias if biased and part is parts[-1] and unit == 1 else None
            made = float_convolution(lowering, anchor, part.name, name, bias)
            total = add_scaled(lowering, target, total, made, 1)
    return total, biased


def _by_bytes(lowering: Lowering, anchor: onnx.NodeProto, constants: IntegerWeights) -> tuple[str, int, int]:
    """The sum without bias, the largest bound of a product, and the number of products."""
    source, target, writer = anchor.input[0], anchor.output[0], lowering.writer
    inputs, pieces = _byte_parts(lowering, source, target), _weight_bytes(constants.weights)
    zero = np.zeros_like(constants.bias)
    bounds = [accumulator_bound(piece, zero, -128, 255) for _, piece, _ in pieces]
    within(max(bounds), INT32_LIMIT, "int32 accumulator")
    if len(pieces) == 1:
        names = [constants.stored(lowering, target, "uint8")]
    else:
        names = [writer.constant((piece + shift).astype(np.uint8), f"{target}/weights") for _, piece, shift in pieces]
    total = ""
    for part in inputs:
        for (factor, _, zero_point), name in zip(pieces, names, strict=True):
            made = integer_convolution(lowering, anchor, part, name, zero_point)
            total = add_scaled(lowering, target, total, made, part.factor * factor)
    return total, max(bounds), len(inputs) * len(pieces)


def _byte_parts(lowering: Lowering, source: str, target: str) -> list[BytePart]:
    """The source itself, or the high and the low byte of 16 bits."""
    if not _is_wide(lowering, source):
        zero_point = lowering.forms.parameters(source).zero_point
        return [BytePart(name=lowering.forms.quantized(source), zero_point=zero_point, factor=1)]
    centred, writer = lowering.forms.centred(source), lowering.writer
    scaled = writer.node("Mul", [centred, writer.constant(np.float32(1 / 256), "one_256th")], target)
    upper = writer.node("Floor", [scaled], target)
    shifted = writer.node("Mul", [upper, writer.constant(np.float32(256), "factor_256")], target)
    lower = writer.node("Sub", [centred, shifted], target)
    offset = writer.node("Add", [upper, writer.constant(np.float32(128), "byte_offset")], target)
    high, low = (writer.node("Cast", [name], target, to=TensorProto.UINT8) for name in (offset, lower))
    return [BytePart(name=high, zero_point=128, factor=256), BytePart(name=low, zero_point=0, factor=1)]


def _weight_bytes(weights: Array) -> list[tuple[int, Array, int]]:
    """(factor, piece, zero point) with weights = sum factor * piece and 0 <= piece + zero point <= 255."""
    parts, factor = [], 1
    while weights.min(initial=0) < -128 or weights.max(initial=0) > 127:
        parts.append((factor, weights & 255, 0))
        weights, factor = weights >> 8, factor * 256
    return [(factor, weights, 128), *parts]
