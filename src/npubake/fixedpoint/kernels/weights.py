"""Room ``fixedpoint``: integer weights and bias of a weighted group, and the end that all weighted groups share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto

from npubake.errors import Fault, StageError
from npubake.fixedpoint.arithmetic import FLOAT32_EXACT, INT32_LIMIT, Array
from npubake.fixedpoint.lowered import OutputFact
from npubake.fixedpoint.lowering import Fused, Lowering, NoIntegerKernelError
from npubake.fixedpoint.requantise import Accumulator, Scaling, requantise
from npubake.graph.summary import FusionGroup

NUMPY_OF = {"float32": np.float32, "float64": np.float64, "int32": np.int32}


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerWeights:
    """weights: int64 in the layout of the node; bias: int64 [C]; divisors: odd D [C], or () for an accumulator output;
    scales: float64 [C], real = scale * acc; output_axis: where the channels lie in the output (negative: from the end).
    """

    weights: Array
    bias: Array
    divisors: tuple[int, ...]
    scales: Array
    output_axis: int

    def bias_along(self, axis: int, rank: int) -> Array:
        """The bias, shaped to broadcast along ``axis`` of ``rank``."""
        return along(self.bias, axis, rank)

    def rows(self, groups: int) -> Array:
        """Weights of a ConvTranspose [I, O / groups, ...] as [O, I / groups, ...]."""
        inputs, outputs = self.weights.shape[:2]
        split = self.weights.reshape(groups, inputs // groups, outputs, -1)
        return split.transpose(0, 2, 1, 3).reshape(groups * outputs, -1)

    def with_weights(self, weights: Array) -> IntegerWeights:
        return replace(self, weights=weights)


def along(values: Array, axis: int, rank: int) -> Array:
    """``values`` [C] as [1, ..., C, ..., 1] with C at ``axis``."""
    shape = [1] * rank
    shape[axis] = len(values)
    return values.reshape(shape)


def integer_weights(
    lowering: Lowering, group: FusionGroup, fused: Fused, channel_axis: int, groups: int = 1
) -> IntegerWeights:
    """w = rint(W / scale[c]) and b = rint(B / (si * scale[c])), float64 arithmetic; for a Conv or ConvTranspose.

    channel_axis: of the output channels in the weight; groups: of a ConvTranspose, whose groups share their scales.
    """
    facts = lowering.weights(group)
    values = lowering.constant(fused.anchor.input[1])
    if values is None:
        raise NoIntegerKernelError("computed weights")
    spread = along(np.array(facts.scales, np.float64), channel_axis, values.ndim)
    scales = np.tile(np.array(facts.scales, np.float64), groups)
    bias = _bias_of(lowering, fused, len(scales))
    input_scale = lowering.forms.parameters(fused.anchor.input[0]).scale
    steps = (facts.divisors * groups, scales, input_scale)
    return checked_weights(group, np.rint(values.astype(np.float64) / spread), bias, steps, 1)


def checked_weights(
    group: FusionGroup, weights: Array, bias: Array, steps: tuple[tuple[int, ...], Array, float], output_axis: int
) -> IntegerWeights:
    """Integer weights, bias and divisors; ``steps`` = (divisors, weight scales [C], input scale).

    Raises StageError where a weight exceeds 127 or a bias 2**31 - 1.
    """
    divisors, scales, input_scale = steps
    accumulator_scales = input_scale * scales
    integers = np.rint(bias / accumulator_scales)
    faults = []
    if np.abs(weights).max(initial=0) > 127:
        faults.append(
            Fault(
                what=f"weights need {int(np.abs(weights).max())} steps, and 8 bits hold 127",
                where=group.name,
                hint="kernels take 8-bit weights; use weights of dtype int8",
            )
        )
    if np.abs(integers).max(initial=0) >= INT32_LIMIT:
        faults.append(
            Fault(
                what=f"the bias needs {np.abs(integers).max():.3g} steps, and int32 holds 2^31 - 1",
                where=group.name,
                hint="weights are tiny beside the bias: raise the weight scale (per_tensor weights do so)",
            )
        )
    if faults:
        raise StageError(*faults)
    return IntegerWeights(
        weights=weights.astype(np.int64),
        bias=integers.astype(np.int64),
        divisors=tuple(divisors),
        scales=accumulator_scales,
        output_axis=output_axis,
    )


def within(where: str, bound: int, limit: int, what: str) -> None:
    """Raise StageError unless bound < limit."""
    if bound >= limit:
        raise StageError(
            Fault(
                what=f"the accumulator can reach {bound}, beyond the {what} (2^{limit.bit_length() - 1})",
                where=where,
                hint="give this layer 8-bit activations, or split it",
            )
        )


def finish_weighted(
    lowering: Lowering,
    group: FusionGroup,
    fused: Fused,
    constants: IntegerWeights,
    accumulator: Accumulator,
) -> None:
    """Requantise the accumulator, or let it leave as real = scale * acc; certify the group."""
    target = group.outputs[0]
    rank = len(lowering.shape(target))
    axis = constants.output_axis % rank
    if lowering.parameters.groups[group.name].accumulator_output:
        exact = leave_unrounded(lowering, target, fused, (constants.scales, axis), accumulator)
    else:
        if len(constants.divisors) != len(constants.bias):
            raise StageError(
                Fault(
                    what=f"{len(constants.divisors)} divisors for {len(constants.bias)} channels",
                    where=group.name,
                    hint="run calibrate again: a group with an integer output has one odd divisor a channel",
                )
            )
        divisor = along(np.array(constants.divisors, np.int64), axis, rank)
        exact = requantise(
            lowering, target, accumulator, Scaling(multiplier=1, divisor=divisor, low=fused.low, high=fused.high)
        )
    lowering.certify(group, accumulator.kernel, accumulator.bound, exact)


def leave_unrounded(
    lowering: Lowering, target: str, fused: Fused, steps: tuple[Array, int], accumulator: Accumulator
) -> str:
    """The accumulator leaves as real = scale * acc; at an output with tail int32 through ``<output>/DequantizeLinear``.

    steps: (scales [C] or [1], axis of the channels). Returns the inequality for the certificate.
    """
    scales, axis, writer = steps[0].astype(np.float32), steps[1], lowering.writer
    rank = len(lowering.shape(target))
    is_output = target in lowering.summary.outputs
    relu = fused.low == 0 and fused.high is None
    clipped = not relu and (fused.low is not None or fused.high is not None)
    name = accumulator.name
    if relu:
        zero = np.zeros((), NUMPY_OF[accumulator.dtype])
        name = writer.node("Max", [name, writer.constant(zero, "zero")], target)
    real = writer.unique(f"{target}/unclipped") if clipped else target
    integer = ""
    if is_output and lowering.tail == "int32":
        integer = _as_int32(lowering, target, name, accumulator)
        steps_held, attributes = _tail_scale(lowering, target, scales, axis)
        scale = writer.constant(steps_held, f"{target}/scales")
        writer.node("DequantizeLinear", [integer, scale], target, real, **attributes)
    else:
        value = _guarded_float(lowering, target, name, accumulator)
        factor = along(scales, axis, rank) if scales.size > 1 else scales.reshape(())
        writer.node("Mul", [value, writer.constant(factor, f"{target}/scales")], target, real)
    if clipped:
        ends = [None if end is None else np.float32(float(end)) for end in (fused.low, fused.high)]
        names = ["" if end is None else writer.constant(end, f"{target}/limit") for end in ends]
        writer.node("Clip", [real, *names], target, target)
        integer = ""
    lowering.forms.put(target, "real", target)
    if is_output:
        scale_values = tuple(float(value) for value in scales) if integer else ()
        lowering.outputs[target] = OutputFact(
            integer=integer, dtype="int32" if integer else "float32", scale=scale_values, zero_point=0, axis=axis
        )
    width = {"float32": 24, "int32": 31, "float64": 53}[accumulator.dtype]
    return f"|acc| <= {accumulator.bound} < 2^{width}: every order of summation is exact"


def _tail_scale(lowering: Lowering, target: str, scales: Array, axis: int) -> tuple[Array, dict[str, int]]:
    """Scale and attributes of the tail's DequantizeLinear.

    One scale is repeated along an axis where float groups read the output: the runtime moves a scalar DequantizeLinear
    forwards over movements and would need a QuantizeLinear to int32, which there is not.
    """
    if scales.size > 1:
        return scales, {"axis": axis}
    shape = lowering.shape(target)
    longest = max(range(len(shape)), key=lambda place: shape[place], default=0)
    read = any(target in group.inputs for group in lowering.summary.groups)
    if read and shape and shape[longest] > 1:
        return np.repeat(scales.reshape(()), shape[longest]), {"axis": longest}
    return scales.reshape(()), {}


def _as_int32(lowering: Lowering, target: str, name: str, accumulator: Accumulator) -> str:
    if accumulator.bound >= INT32_LIMIT:
        raise StageError(
            Fault(
                what=f"the accumulator can reach {accumulator.bound}, and the int32 tail holds 2^31 - 1",
                where=target,
                hint="give the tail layer 8-bit activations",
            )
        )
    output = lowering.writer.unique(f"{target}/accumulator")
    if accumulator.dtype == "int32":
        return lowering.writer.node("Identity", [name], target, output)
    return lowering.writer.node("Cast", [name], target, output, to=TensorProto.INT32)


def _guarded_float(lowering: Lowering, target: str, name: str, accumulator: Accumulator) -> str:
    """The accumulator in float32. A Clip that never clips keeps the runtime from folding the scale into the weights."""
    writer = lowering.writer
    if accumulator.dtype != "float32":
        return writer.node("Cast", [name], target, to=TensorProto.FLOAT)
    ends = [writer.constant(np.float32(end), f"accumulator_limit_{end}") for end in (-FLOAT32_EXACT, FLOAT32_EXACT)]
    return writer.node("Clip", [name, *ends], target)


def _bias_of(lowering: Lowering, fused: Fused, channels: int) -> Array:
    """Bias of a convolution and a fused constant Add, float64 [C]."""
    total = np.zeros(channels)
    if len(fused.anchor.input) > 2 and fused.anchor.input[2]:
        value = lowering.constant(fused.anchor.input[2])
        if value is None:
            raise NoIntegerKernelError("computed bias")
        total = total + value.astype(np.float64).reshape(-1)
    if fused.addend is not None:
        if fused.addend.size not in (1, channels):
            raise NoIntegerKernelError(f"a fused Add of shape {fused.addend.shape}")
        total = total + fused.addend.astype(np.float64).reshape(-1)
    return total
