"""quant: decibels against exact rational arithmetic, and at the ends of what a float can hold."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.quant.sqnr import sqnr_db

SQUARES = st.floats(min_value=5e-324, max_value=1.7e308)


@given(SQUARES, SQUARES)
def test_it_is_ten_times_the_logarithm_of_the_ratio(signal: float, noise: float) -> None:
    ratio = Fraction(signal) / Fraction(noise)
    wanted = 10 * mpmath.log10(mpmath.mpf(ratio.numerator) / ratio.denominator)
    assert sqnr_db(signal, noise) == pytest.approx(float(wanted), abs=1e-11)


@given(SQUARES, SQUARES, st.floats(min_value=0, max_value=500))
def test_it_stays_within_its_limit(signal: float, noise: float, limit: float) -> None:
    found, free = sqnr_db(signal, noise, limit), sqnr_db(signal, noise)
    assert found == (free if abs(free) <= limit else math.copysign(limit, free))


@pytest.mark.parametrize(
    ("signal", "noise", "wanted"),
    [(2.0, 0.0, 1), (0.0, 0.0, 1), (0.0, 1e-300, -1), (5.0, math.inf, -1), (0.0, math.inf, -1)],
)
def test_no_noise_no_signal_and_infinite_noise(signal: float, noise: float, wanted: int) -> None:
    assert sqnr_db(signal, noise) == wanted * math.inf
    assert sqnr_db(signal, noise, 120.0) == wanted * 120.0


def test_what_is_no_number_has_no_ratio() -> None:
    assert math.isnan(sqnr_db(math.nan, 1.0, 120.0))
    assert math.isnan(sqnr_db(1.0, math.nan, 120.0))
