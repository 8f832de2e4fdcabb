"""Room ``fixedpoint``: from an accumulator to the integers of a tensor: q = clamp(zp + rhe(acc * m / D)), D = n / 2**k.

Two roads, chosen by bounds. float32: QuantizeLinear divides and rounds; exact while |acc * m| < 2**24 and
min(|acc * m| * 2**k, (|q|max + 1) * n) < 2**23 (proof in docs/arithmetic.md). float64: Div and Round, exact while
|acc * m| < 2**53 and min(|acc * m| * 2**k, (|q|max + 1) * n) < 2**52.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from onnx import TensorProto

from npubake.fixedpoint.arithmetic import (
    FLOAT32_EXACT,
    FLOAT32_ROUNDED,
    FLOAT64_EXACT,
    FLOAT64_ROUNDED,
    Array,
    round_half_even,
)
from npubake.fixedpoint.forms import NUMPY_TYPES
from npubake.fixedpoint.lowering import Lowering, NoIntegerKernelError
from npubake.quant.parameters import TensorParameters, limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """A tensor of exact integers, |value| <= bound; kernel: how it was made, for the certificate."""

    name: str
    dtype: Literal["float32", "float64", "int32"]
    bound: int
    kernel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Multiply by ``multiplier`` (integer), divide by ``divisor / 2**shift``: int64 arrays that broadcast; a vector
    along axis 1 has shape [1, C, 1, ...]. low, high: fused limits in real units.
    """

    multiplier: int
    divisor: Array
    shift: Array | None = None
    low: Fraction | None = None
    high: Fraction | None = None

    def quotient(self) -> Array:
        """The divisor as it is divided by, float64; exact, and in float32 too where ``divisor`` < 2**24."""
        return np.ldexp(self.divisor.astype(np.float64), 0 if self.shift is None else -self.shift)

    def reach(self, bound: int, largest: int) -> int:
        """min(bound * 2**k, largest * n) at its greatest: |quotient| * n of all quotients that do not saturate."""
        shifts = np.zeros_like(self.divisor) if self.shift is None else self.shift
        pairs = {(int(shift), int(divisor)) for shift, divisor in zip(shifts.flat, self.divisor.flat, strict=True)}
        return max(min(bound << shift, largest * divisor) for shift, divisor in pairs)


def clamp_limits(parameters: TensorParameters, low: Fraction | None, high: Fraction | None) -> tuple[int, int]:
    """Limits of q - zero_point: those of the dtype, narrowed by fused limits (rhe(limit / scale))."""
    lowest, highest = limits(parameters)
    scale = Fraction(parameters.scale)
    if low is not None:
        lowest = min(max(lowest, round_half_even(low / scale)), highest)
    if high is not None:
        highest = max(min(highest, round_half_even(high / scale)), lowest)
    return lowest, highest


def requantise(lowering: Lowering, target: str, accumulator: Accumulator, scaling: Scaling) -> str:
    """Make ``target`` from ``accumulator``; returns the inequality that proves it exact.

    Raises NoIntegerKernelError where no road is exact.
    """
    facts = lowering.forms.parameters(target)
    low, high = limits(facts)
    if not lowering.shape(target):  # a divisor of one dimension would give a number one
        shift = scaling.shift if scaling.shift is None else scaling.shift.reshape(())
        scaling = replace(scaling, divisor=scaling.divisor.reshape(()), shift=shift)
    bound = accumulator.bound * scaling.multiplier
    reach = scaling.reach(bound, max(-low, high) + 1)
    if accumulator.dtype != "float64" and bound < FLOAT32_EXACT and reach < FLOAT32_ROUNDED:
        _by_quantize_linear(lowering, target, accumulator, scaling)
        return (
            f"|acc * m| <= {bound} < 2^24, min(|acc * m| * 2^k, |q| * n) <= {reach} < 2^23: "
            "float32 division rounds exactly"
        )
    if bound >= FLOAT64_EXACT or reach >= FLOAT64_ROUNDED:
        raise NoIntegerKernelError(
            f"the accumulator can reach {bound}, which no exact kernel rounds (limits 2^53, 2^52)"
        )
    _by_float64(lowering, target, accumulator, scaling)
    return (
        f"|acc * m| <= {bound} < 2^53, min(|acc * m| * 2^k, |q| * n) <= {reach} < 2^52: float64 division rounds exactly"
    )


def clip_quantized(lowering: Lowering, target: str, raw: str, bounds: tuple[int, int]) -> None:
    """``target``'s quantized form is ``raw``, clamped to ``bounds`` of q - zero_point."""
    facts = lowering.forms.parameters(target)
    writer, (low, high) = lowering.writer, bounds
    if facts.dtype == "uint8":
        ends = [np.uint8(low + facts.zero_point), np.uint8(high + facts.zero_point)]
        names = [writer.constant(end, f"{target}/limit") for end in ends]
        lowering.forms.put(target, "quantized", writer.node("Clip", [raw, *names], target, f"{target}/quantized"))
        return
    wide = writer.node("Cast", [raw], target, to=TensorProto.FLOAT)  # Clip has no int16 kernel
    names = [writer.constant(np.float32(end), f"{target}/limit") for end in bounds]
    lowering.forms.put(target, "centred", writer.node("Clip", [wide, *names], target, f"{target}/integer"))


def _by_quantize_linear(lowering: Lowering, target: str, accumulator: Accumulator, scaling: Scaling) -> None:
    facts, writer = lowering.forms.parameters(target), lowering.writer
    bounds = clamp_limits(facts, scaling.low, scaling.high)
    clamped = bounds != limits(facts)
    name = writer.unique(f"{target}/unclamped" if clamped else f"{target}/quantized")
    value = accumulator.name
    if accumulator.dtype == "int32":
        value = writer.node("Cast", [value], target, to=TensorProto.FLOAT)
    if scaling.multiplier != 1:
        factor = writer.constant(np.float32(scaling.multiplier), f"{target}/multiplier")
        value = writer.node("Mul", [value, factor], target)
    zero: Any = NUMPY_TYPES[facts.dtype](facts.zero_point)
    divisor: Array = scaling.quotient().astype(np.float32)
    attributes: dict[str, Any] = {}
    if divisor.size > 1 and np.all(divisor == divisor.reshape(-1)[0]):
        divisor = divisor.reshape(-1)[:1]
    if divisor.size == 1:
        scale, zero_point = writer.constant(divisor.reshape(()), f"{target}/divisor"), zero
    elif divisor.ndim > 2 and divisor.shape[1] == divisor.size:
        scale, attributes = writer.constant(divisor.reshape(-1), f"{target}/divisor"), {"axis": 1}
        zero_point = np.full(divisor.size, zero)
    else:  # QuantizeLinear along the last axis is a hundred times slower than a division by a vector
        value = writer.node("Div", [value, writer.constant(divisor, f"{target}/divisor")], target)
        scale, zero_point = writer.constant(np.float32(1), "one"), zero
    inputs = [value, scale, writer.constant(zero_point, f"{target}/zero_point")]
    writer.node("QuantizeLinear", inputs, target, name, **attributes)
    if clamped:
        clip_quantized(lowering, target, name, bounds)
    else:
        lowering.forms.put(target, "quantized", name)


def _by_float64(lowering: Lowering, target: str, accumulator: Accumulator, scaling: Scaling) -> None:
    writer, value = lowering.writer, accumulator.name
    if accumulator.dtype != "float64":
        value = writer.node("Cast", [value], target, to=TensorProto.DOUBLE)
    if scaling.multiplier != 1:
        value = writer.node(
            "Mul", [value, writer.constant(np.float64(scaling.multiplier), f"{target}/multiplier")], target
        )
    divisor = writer.constant(scaling.quotient(), f"{target}/divisor")
    quotient = writer.node("Div", [value, divisor], target)
    round_and_clamp(lowering, target, quotient, (scaling.low, scaling.high))


def round_and_clamp(
    lowering: Lowering, target: str, quotient: str, fused: tuple[Fraction | None, Fraction | None] = (None, None)
) -> None:
    """``target``'s centred form is the float64 tensor ``quotient``, rounded half to even and clamped."""
    writer = lowering.writer
    bounds = clamp_limits(lowering.forms.parameters(target), *fused)
    rounded = writer.node("Round", [quotient], target)
    narrow = writer.node("Cast", [rounded], target, to=TensorProto.FLOAT)  # monotonic: what lies beyond stays beyond
    names = [writer.constant(np.float32(end), f"{target}/limit") for end in bounds]
    name = writer.unique(f"{target}/integer")
    lowering.forms.put(target, "centred", writer.node("Clip", [narrow, *names], target, name))
