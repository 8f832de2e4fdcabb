"""quant: scales on the grid of exact rounding, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npubake.quant.affine import tensor_parameters
from npubake.quant.ranges import Range
from npubake.quant.weight_formats import WeightFormat
from npubake.quant.weight_grid import FINE_LIMIT, NARROW_LIMIT, WIDE_LIMIT, divisor_limit, place_scales

SCALES = st.floats(2.0**-24, 2.0**8, width=32)
UINT8 = tensor_parameters(Range(low=-1.0, high=3.0), "uint8", asymmetric=True)
INT16 = tensor_parameters(Range(low=-1.0, high=1.0), "int16", asymmetric=True)


@settings(max_examples=300)
@given(st.floats(1e-12, 1e6), SCALES, SCALES, st.sampled_from([FINE_LIMIT, NARROW_LIMIT, WIDE_LIMIT]))
def test_the_nearest_scale_that_is_not_below_what_is_wanted(
    wanted: float, input_scale: float, output_scale: float, limit: int
) -> None:
    placed = place_scales(np.array([wanted]), input_scale, output_scale, limit)
    odd, shift, scale = int(placed.divisors[0]), int(placed.shifts[0]), Fraction(float(placed.scales[0]))

    def exact(divisor: int) -> Fraction:
        return Fraction(output_scale) * Fraction(2**shift) / (Fraction(input_scale) * divisor)

    assert odd % 2 == 1
    assert 1 <= odd <= limit
    assert abs(scale - exact(odd)) <= exact(odd) / 2**53
    assert scale >= Fraction(wanted) * (1 - Fraction(1, 2**51))
    if odd < limit:  # the next finer one is below what is wanted
        assert exact(odd + 2) < Fraction(wanted) * (1 + Fraction(1, 2**51))
    if shift:
        assert min(limit, NARROW_LIMIT) // 2 <= odd <= min(limit, NARROW_LIMIT)
        assert scale <= Fraction(wanted) * (1 + Fraction(2, odd) + Fraction(1, 2**51))


def test_limits_by_what_the_fastest_kernel_rounds() -> None:
    plain = WeightFormat()
    assert divisor_limit(UINT8, UINT8, plain) == 16383
    assert divisor_limit(UINT8, INT16, plain) == 255
    assert divisor_limit(INT16, UINT8, plain) == divisor_limit(INT16, INT16, plain) == 2**24 - 1
    for wide in (
        WeightFormat(dtype="int16"),
        WeightFormat(symmetric=False),
        WeightFormat(granularity="per_group"),
        WeightFormat(dtype="int4", symmetric=False),
    ):
        assert divisor_limit(UINT8, UINT8, wide) == 2**24 - 1
    assert divisor_limit(UINT8, UINT8, WeightFormat(dtype="int4", granularity="per_group")) == 16383


def test_an_output_scale_beyond_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        place_scales(np.array([1.0, 1e38]), 1.0, 1e-10, NARROW_LIMIT)


@given(st.integers(0, 10**6), st.integers(0, 30))
def test_an_odd_divisor_never_ties(seed: int, shift: int) -> None:
    """Why n is odd: accumulator * 2**k / n is never a half, so half-even and half-away agree."""
    generator = np.random.default_rng(seed)
    divisor = int(generator.integers(0, 8192)) * 2 + 1
    for accumulator in generator.integers(-(2**31), 2**31, 50):
        value = Fraction(int(accumulator) * 2**shift, divisor)
        assert (value * 2).denominator != 1 or value.denominator == 1
        if value.denominator != 1:
            assert abs(value - Fraction(2 * round(value - Fraction(1, 2)) + 1, 2)) >= Fraction(1, 2 * divisor)
