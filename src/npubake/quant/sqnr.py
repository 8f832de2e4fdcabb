"""quant: the ratio of signal to quantisation noise in decibels: the one formula of forecasts, judge and gates.

SQNR = 10 log10(sum x^2 / sum e^2) dB, of sums or of means over the same elements. As a difference of logarithms, so
that the quotient of extreme sums neither overflows nor underflows.
"""

from __future__ import annotations

import math


def sqnr_db(signal: float, noise: float, limit: float = math.inf) -> float:
    """SQNR within ``-limit`` .. ``limit`` dB: ``limit`` without noise, whatever the signal; ``-limit`` where noise
    stands against no signal, or is infinite; NaN where either is NaN. signal, noise: squares, not negative.
    """
    if noise == 0.0:
        return limit
    if signal == 0.0 or math.isinf(noise):
        return -limit
    return min(max(10.0 * (math.log10(signal) - math.log10(noise)), -limit), limit)
