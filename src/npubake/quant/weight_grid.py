"""quant: the grid of weight scales that exact rounding allows. numpy and integers only; no onnx, no graph.

A group with input scale si and integer output scale so computes ``q = zero + round(accumulator / D[c])`` with
``D = n / 2**k``, n odd: no quotient lies on a tie, and each is at least 1 / (2 n) away from one, so every rounding rule
agrees (docs/arithmetic.md). The weight scale of channel c is then ``so * 2**k / (si * n)``. Any scale that is wanted
has a neighbour on the grid that is wider by less than 2 / n; n has 14 bits, between an 8-bit input and a 16-bit output
8 of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.quant.parameters import TensorParameters
from npubake.quant.weight_formats import WeightFormat

NARROW_LIMIT = 2**14 - 1  # below: multiplying by fl32(1 / D) rounds like the exact quotient, for 8-bit outputs
FINE_LIMIT = 2**8 - 1  # below: 32769 * n < 2**23, so that float32 division rounds exactly to 16 bits
WIDE_LIMIT = 2**24 - 1  # float64 division; si * n is exact in float64
SHIFT_LIMIT = 100  # n / 2**k is a normal float32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """Scales on the grid. divisors: the odd n, shifts: k, int64 [channels]; scales: float64 [channels]."""

    divisors: NDArray[np.int64]
    shifts: NDArray[np.int64]
    scales: NDArray[np.float64]


def divisor_limit(source: TensorParameters, target: TensorParameters, weights: WeightFormat) -> int:
    """The largest n between these tensors: what the fastest exact kernel of such a group rounds."""
    if source.dtype == "int16" or not weights.fits_byte:
        return WIDE_LIMIT
    return FINE_LIMIT if target.dtype == "int16" else NARROW_LIMIT


def place_scales(wanted: NDArray[np.float64], input_scale: float, output_scale: float, limit: int) -> Placed:
    """The narrowest grid scales that are not below ``wanted`` > 0, float64 [channels]; limit: 2**bits - 1, largest n.

    k is the smallest shift >= 0 for which n has min(bits, 14) bits; scales that would need a larger n take the largest.
    Raises ValueError where a scale is more than 2**100 output steps.
    """
    bits = min(limit, NARROW_LIMIT).bit_length()
    ratio = output_scale / (input_scale * wanted)
    shifts = np.maximum(bits - np.frexp(ratio)[1], 0).astype(np.int64)
    if shifts.max(initial=0) > SHIFT_LIMIT:
        raise ValueError(f"channel {int(shifts.argmax())}: output scale {output_scale} is too small for its weights")
    whole = np.minimum(np.floor(np.ldexp(ratio, shifts)), limit).astype(np.int64)
    divisors = np.maximum(whole - (1 - whole % 2), 1)
    return Placed(divisors=divisors, shifts=shifts, scales=grid_scales(input_scale, output_scale, divisors, shifts))


def grid_scales(
    input_scale: float, output_scale: float, divisors: NDArray[np.int64], shifts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``so * 2**k / (si * n)``, float64; si * n is exact in float64 (24 + 24 bits), so one rounding is made."""
    return np.asarray(np.ldexp(output_scale, shifts) / (input_scale * divisors.astype(np.float64)))
