"""Room ``fixedpoint``: the numbers of docs/arithmetic.md. Integers, fractions and numpy arrays in and out; no onnx."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.parameters import TensorParameters, limits

Array = NDArray[Any]

FLOAT32_EXACT = 2**24  # every integer up to here is a float32
FLOAT32_ROUNDED = 2**23  # |acc| below: RNE(fl32(acc / D)) is the exact rounding for every integer D
FLOAT64_EXACT = 2**53
FLOAT64_ROUNDED = 2**52
INT32_LIMIT = 2**31
PRECISION_8 = 12  # bits of a scale ratio where all tensors hold 8 bits
PRECISION_16 = 24  # and where one of them holds 16


def round_half_even(value: Fraction) -> int:
    """The nearest integer, ties to even."""
    return round(value)


def quantise_scalar(value: Fraction, parameters: TensorParameters) -> int:
    """clamp(rhe(value / scale)) as q - zero_point."""
    low, high = limits(parameters)
    return min(max(round_half_even(value / Fraction(parameters.scale)), low), high)


def quantise_array(values: Array, parameters: TensorParameters) -> Array:
    """clamp(rint(float64(value) / scale)) as q - zero_point, int64; float64 arithmetic."""
    low, high = limits(parameters)
    return np.clip(np.rint(values.astype(np.float64) / parameters.scale), low, high).astype(np.int64)


def nearest_odd(value: Fraction) -> int:
    """The odd integer nearest to ``value`` >= 0, the larger one of two equally near, at least 1."""
    below = 2 * ((value.numerator - value.denominator) // (2 * value.denominator)) + 1  # largest odd <= value
    return max(1, below if value - below < 1 else below + 2)


def scale_ratio(ratio: Fraction, precision: int) -> tuple[int, int]:
    """(m, n) with m / n close to ``ratio`` > 0 and n odd (relative error at most 2**-precision); (1, 1) for 1.

    ratio > 1: n = 2**k - 1 with the smallest k >= 1 for which n * ratio >= 2**precision, m = rhe(n * ratio).
    ratio < 1: m the smallest power of two with m / ratio >= 2**precision, n the odd integer nearest to m / ratio.
    """
    if ratio == 1:
        return 1, 1
    if ratio > 1:
        divisor = 1
        while divisor * ratio < 2**precision:
            divisor = 2 * divisor + 1
        return round_half_even(divisor * ratio), divisor
    multiplier = 1
    while multiplier / ratio < 2**precision:
        multiplier *= 2
    return multiplier, nearest_odd(multiplier / ratio)


def precision_of(*parameters: TensorParameters) -> int:
    """Bits of a scale ratio between these tensors."""
    return PRECISION_16 if any("16" in entry.dtype for entry in parameters) else PRECISION_8


def accumulator_bound(weights: Array, bias: Array, low: int, high: int) -> int:
    """No partial sum of sum_i w[c, i] * x[i] + b[c], in any order, exceeds this, for low <= x <= high.

    low <= 0 <= high; weights: integers, shape [channels, ...]; bias: integers [channels].
    The larger one of P and N, the sums of the positive and of the negative worst cases.
    """
    rows = weights.reshape(len(weights), -1).astype(np.int64)
    positive = np.where(rows > 0, rows, 0).sum(axis=1)
    negative = np.where(rows < 0, -rows, 0).sum(axis=1)
    bias = bias.astype(np.int64)
    above = positive * high - negative * low + np.maximum(bias, 0)
    below = negative * high - positive * low + np.maximum(-bias, 0)
    return int(max(above.max(), below.max()))
