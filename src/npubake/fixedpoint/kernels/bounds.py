"""Room ``fixedpoint``: the bounds of exact kernels, and ratios of scales that stay within them. Integers in and out."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from npubake.fixedpoint.arithmetic import FLOAT64_ROUNDED, PRECISION_8, scale_ratio
from npubake.fixedpoint.lowering import NoIntegerKernelError


def within(bound: int, limit: int, what: str) -> None:
    """Raise NoIntegerKernelError, so that the group computes in float and is listed, unless bound < limit."""
    if bound >= limit:
        power = limit.bit_length() - 1
        raise NoIntegerKernelError(f"the accumulator can reach {bound}, beyond the {what} (2^{power})")


def bounded_precision(most: int, bound_at: Callable[[int], int]) -> int:
    """The largest p of PRECISION_8..most with bound_at(p) < 2^52. Raises NoIntegerKernelError where there is none."""
    for precision in range(most, PRECISION_8, -1):
        if bound_at(precision) < FLOAT64_ROUNDED:
            return precision
    within(bound_at(PRECISION_8), FLOAT64_ROUNDED, "float64 quotient")
    return PRECISION_8


def bounded_ratio(ratio: Fraction, most: int, above: int, below: int = 0) -> tuple[int, int]:
    """(m, n) of ``ratio`` with the most bits for which above * m and below * n are less than 2^52.

    above, below: the largest magnitudes that m and n are multiplied by.
    """

    def bound_at(precision: int) -> int:
        multiplier, divisor = scale_ratio(ratio, precision)
        return max(above * multiplier, below * divisor)

    return scale_ratio(ratio, bounded_precision(most, bound_at))
