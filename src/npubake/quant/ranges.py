"""quant: real intervals that hold zero, and how they are snapped, merged and widened. Plain floats in and out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MANTISSA_BITS = 10  # measured: scales made from ranges so snapped are equal on every CPU class (docs/architecture.md)
DEAD_BELOW = 2.0**-60  # float32 products of two such scales would leave the normal range: nothing is carried below it
FLOAT16_MAX = 65504.0  # largest finite float16


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A closed interval low <= 0 <= high, in real units. Raises ValueError where it holds no zero or is not finite."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= 0.0 <= self.high):
            raise ValueError(f"a range holds zero and is finite, not {self.low} .. {self.high}")

    @property
    def absmax(self) -> float:
        return max(-self.low, self.high)

    @property
    def dead(self) -> bool:
        """True where no value above 2**-60 was seen: the tensor carries nothing."""
        return self.absmax < DEAD_BELOW


NEUTRAL = Range(low=0.0, high=1.0)  # what a dead tensor is given: it neither drowns its readers nor lifts its maker


def including_zero(low: float, high: float) -> Range:
    """The smallest range that holds zero, ``low`` and ``high``."""
    return Range(low=min(float(low), 0.0), high=max(float(high), 0.0))


def snap_outward(value: float) -> float:
    """Nearest number not smaller in magnitude with at most 10 mantissa bits behind the leading one (sign kept).

    Exact: ``frexp``, ``ceil`` and ``ldexp`` of an 11-bit integer do not round.
    """
    fraction, exponent = math.frexp(abs(value))
    steps = math.ceil(math.ldexp(fraction, MANTISSA_BITS + 1))
    return math.copysign(math.ldexp(steps, exponent - MANTISSA_BITS - 1), value)


def snapped(span: Range) -> Range:
    """Both ends snapped outward; at most 2**-10 of each end is given away."""
    return Range(low=snap_outward(span.low), high=snap_outward(span.high))


def union(spans: Iterable[Range]) -> Range:
    """The smallest range that holds all of ``spans``; raises ValueError on none."""
    known = list(spans)
    return Range(low=min(span.low for span in known), high=max(span.high for span in known))


def intersection(first: Range, second: Range) -> Range:
    """What both hold."""
    return Range(low=max(first.low, second.low), high=min(first.high, second.high))


def widened(span: Range, factor: float) -> Range:
    """Both ends times ``factor`` (at least 1), snapped outward again."""
    if factor < 1.0:
        raise ValueError(f"a range is widened by 1 or more, not by {factor}")
    return snapped(Range(low=span.low * factor, high=span.high * factor))
