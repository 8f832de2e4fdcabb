"""quant: snapping, merging and widening of ranges, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.quant.ranges import Range, including_zero, snap_outward, snapped, union, widened

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS)
def test_snapping_goes_outward_by_less_than_one_unit_of_the_tenth_mantissa_bit(value: float) -> None:
    result = snap_outward(value)
    gain = abs(Fraction(result)) - abs(Fraction(value))
    assert gain >= 0
    assert gain == 0 or gain < abs(Fraction(result)) / 1024
    assert value == 0 or (result > 0) == (value > 0)


@given(FLOATS)
def test_a_snapped_number_has_at_most_eleven_significant_bits(value: float) -> None:
    numerator = abs(Fraction(snap_outward(value)).numerator)
    assert numerator == 0 or (numerator >> ((numerator & -numerator).bit_length() - 1)).bit_length() <= 11


@given(st.floats(min_value=1.0, max_value=60000.0, width=16))
def test_what_float16_holds_is_left_alone(value: float) -> None:
    """float16 has 10 mantissa bits itself (IEEE 754 binary16)."""
    assert float(np.float16(value)) == snap_outward(value)


@given(FLOATS)
def test_snapping_twice_changes_nothing(value: float) -> None:
    assert snap_outward(snap_outward(value)) == snap_outward(value)


def test_known_values() -> None:
    assert snap_outward(6.0) == 6.0
    assert snap_outward(-1.0) == -1.0
    assert snap_outward(1.0 + 2.0**-20) == 1.0 + 2.0**-10
    assert snap_outward(-(2.0 - 2.0**-20)) == -2.0
    assert snap_outward(0.0) == 0.0


def test_the_ends_of_float32() -> None:
    assert snap_outward(float(np.finfo(np.float32).max)) == 2.0**128
    assert snap_outward(float(np.finfo(np.float32).smallest_subnormal)) == 2.0**-149


@pytest.mark.parametrize(
    ("low", "high"), [(0.5, 1.0), (-1.0, -0.5), (float("nan"), 1.0), (-1.0, float("inf"))]
)  # fmt: skip
def test_a_range_without_zero_or_end_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="holds zero"):
        Range(low=low, high=high)


def test_zero_is_drawn_in() -> None:
    assert including_zero(2.0, 3.0) == Range(low=0.0, high=3.0)
    assert including_zero(-3.0, -2.0) == Range(low=-3.0, high=0.0)


def test_union_holds_all_and_no_more() -> None:
    assert union([Range(low=-1, high=0), Range(low=0, high=5), Range(low=-3, high=1)]) == Range(low=-3, high=5)


@given(st.floats(min_value=1.0, max_value=1000.0))
def test_widening_reaches_the_factor_and_little_more(factor: float) -> None:
    span = widened(Range(low=-0.75, high=3.0), factor)
    assert Fraction(3) * Fraction(factor) * (1 - Fraction(1, 2**50)) <= Fraction(span.high)
    assert Fraction(span.high) <= Fraction(3) * Fraction(factor) * Fraction(1025, 1024)
    assert span == snapped(span)


def test_narrowing_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        widened(Range(low=0, high=1), 0.5)


def test_dead_means_nothing_above_two_to_minus_sixty() -> None:
    assert Range(low=0.0, high=0.0).dead
    assert Range(low=-(2.0**-61), high=2.0**-149).dead
    assert not Range(low=-(2.0**-60), high=0.0).dead
