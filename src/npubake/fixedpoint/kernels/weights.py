"""Room ``fixedpoint``: integer weights and bias of a weighted group, and the end that all weighted groups share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto

from npubake.errors import Fault, StageError
from npubake.fixedpoint.arithmetic import FLOAT32_EXACT, INT32_LIMIT, Array
from npubake.fixedpoint.kernels.weight_storage import PackedWeights, StoredType, stored_weights
from npubake.fixedpoint.lowered import OutputFact
from npubake.fixedpoint.lowering import Fused, Lowering, NoIntegerKernelError
from npubake.fixedpoint.requantise import Accumulator, Scaling, requantise
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import WeightParameters
from npubake.quant.weight_grid import SHIFT_LIMIT, WIDE_LIMIT
from npubake.quant.weights import effective_weights, encode_weights

NUMPY_OF = {"float32": np.float32, "float64": np.float64, "int32": np.int32}


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerWeights:
    """weights: int64 in the layout of the node, what is multiplied: (code - zero point) * multiplier; bias: int64 [C];
    divisors, shifts: odd n and k of D = n / 2**k, int64 [C], both None for an accumulator output; scales: float64 [C],
    real = scale * acc; output_axis: where the channels lie in the output (negative: from the end); packed: how they are
    stored in 4 bits, where they are.
    """

    weights: Array
    bias: Array
    divisors: Array | None
    shifts: Array | None
    scales: Array
    output_axis: int
    packed: PackedWeights | None = None

    @property
    def in_bytes(self) -> bool:
        """True where every weight is one of -128..127."""
        return bool(self.weights.min(initial=0) >= -128 and self.weights.max(initial=0) <= 127)

    @property
    def dividing(self) -> Array:
        """D = n / 2**k of every channel, float64, exact."""
        if self.divisors is None or self.shifts is None:
            raise ValueError("an accumulator output has no divisors")
        return np.ldexp(self.divisors.astype(np.float64), -self.shifts)

    def stored(self, lowering: Lowering, target: str, dtype: StoredType) -> str:
        """The weights as a constant of ``dtype`` (uint8: shifted by 128)."""
        return stored_weights(lowering, self.weights, self.packed, target, dtype)

    def bias_along(self, axis: int, rank: int) -> Array:
        """The bias, shaped to broadcast along ``axis`` of ``rank``."""
        return along(self.bias, axis, rank)

    def rows(self, groups: int) -> Array:
        """Weights of a ConvTranspose [I, O / groups, ...] as [O, I / groups, ...]."""
        inputs, outputs = self.weights.shape[:2]
        split = self.weights.reshape(groups, inputs // groups, outputs, -1)
        return split.transpose(0, 2, 1, 3).reshape(groups * outputs, -1)

    def with_weights(self, weights: Array) -> IntegerWeights:
        """Others in their place, stored as they are."""
        return replace(self, weights=weights, packed=None)


def along(values: Array, axis: int, rank: int) -> Array:
    """``values`` [C] as [1, ..., C, ..., 1] with C at ``axis``."""
    shape = [1] * rank
    shape[axis] = len(values)
    return values.reshape(shape)


def integer_weights(
    lowering: Lowering, group: FusionGroup, fused: Fused, bias: Array, output_axis: int, transposed: bool = False
) -> IntegerWeights:
    """Weights of the group's anchor and ``bias`` (float64 [C], C a multiple of the channels) as integers.

    transposed: the initialiser's two axes are swapped to give the node's layout. Raises StageError where a weight
    leaves its type, a bias int32, or the divisors are not on the grid.
    """
    facts = lowering.weights(group)
    values = lowering.constant(fused.anchor.input[1])
    if values is None:
        raise NoIntegerKernelError("computed weights")
    repeats = len(bias) // len(facts.scales)
    scales = lowering.forms.parameters(fused.anchor.input[0]).scale * np.tile(np.array(facts.scales), repeats)
    integers = np.rint(bias / scales)
    faults = _grid_faults(group, facts)
    try:
        codes = encode_weights(values, facts)
    except ValueError as error:
        hint = "model and parameters belong to different builds: run calibrate again on this graph"
        raise StageError(*faults, Fault(what=str(error), where=group.name, hint=hint)) from None
    if np.abs(integers).max(initial=0) >= INT32_LIMIT:
        what = f"the bias needs {np.abs(integers).max():.3g} steps, and int32 holds 2^31 - 1"
        hint = "weights are tiny beside the bias: raise the weight scale (per_tensor weights do so)"
        faults.append(Fault(what=what, where=group.name, hint=hint))
    if faults:
        raise StageError(*faults)
    weights = effective_weights(codes, facts)
    return IntegerWeights(
        weights=weights.T if transposed else weights,
        bias=integers.astype(np.int64),
        divisors=np.array(facts.divisors * repeats, np.int64) if facts.divisors else None,
        shifts=np.array((facts.shifts or (0,) * len(facts.divisors)) * repeats, np.int64) if facts.divisors else None,
        scales=scales,
        output_axis=output_axis,
        packed=PackedWeights.of(codes, facts, transposed) if facts.dtype == "int4" else None,
    )


def _grid_faults(group: FusionGroup, facts: WeightParameters) -> list[Fault]:
    """A fault unless every divisor is on the grid that the proofs need."""
    bad = [divisor for divisor in facts.divisors if divisor % 2 == 0 or not 0 < divisor <= WIDE_LIMIT]
    bad += [shift for shift in facts.shifts if not 0 <= shift <= SHIFT_LIMIT]
    lengths = {len(facts.divisors), len(facts.shifts or facts.divisors)}
    if not bad and lengths in ({0}, {len(facts.scales)}):
        return []
    what = f"{len(facts.divisors)} divisors for {len(facts.scales)} channels, off the grid: {bad[:3]}"
    hint = "run calibrate again: a group with an integer output has one odd divisor and one shift a channel"
    return [Fault(what=what, where=group.name, hint=hint)]


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
        exact = requantise(lowering, target, accumulator, _scaling(group, constants, fused, axis, rank))
    lowering.certify(group, accumulator.kernel, accumulator.bound, exact)


def _scaling(group: FusionGroup, constants: IntegerWeights, fused: Fused, axis: int, rank: int) -> Scaling:
    if constants.divisors is None or constants.shifts is None:
        hint = "run calibrate again: a group with an integer output has one odd divisor a channel"
        raise StageError(Fault(what="no divisors for its channels", where=group.name, hint=hint))
    divisor, shift = along(constants.divisors, axis, rank), along(constants.shifts, axis, rank)
    return Scaling(multiplier=1, divisor=divisor, shift=shift, low=fused.low, high=fused.high)


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


def convolution_bias(lowering: Lowering, fused: Fused, channels: int) -> Array:
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
