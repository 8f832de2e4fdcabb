"""graph.transforms.factors against the papers' own examples and closed forms."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.graph.transforms.factors import Ranges, Strength, divisors, exponents

Values = NDArray[np.float64]
MAGNITUDES = st.lists(st.floats(2.0**-6, 1.0), min_size=2, max_size=12)


def _ranges(activation: list[float], weights: list[float]) -> Ranges:
    """One family; id 0 is FIXED."""
    return Ranges(
        activation=np.array([np.nan, *activation]),
        weights=np.array([np.nan, *weights]),
        family=np.array([0, *[1] * len(activation)]),
    )


def test_the_example_of_smoothquant() -> None:
    """Figure 5 of arXiv 2211.10438: |X| <= 2, 16, 2, 9 and |W| <= 2, 1, 2, 1 give s = 1, 4, 1, 3 at alpha = 1/2."""
    logs = divisors(_ranges([2, 16, 2, 9], [2, 1, 2, 1]), Strength(alpha=0.5))[1:]
    np.testing.assert_allclose(np.exp2(logs - logs[0]), [1, 4, 1, 3])


@given(MAGNITUDES, st.data())
def test_at_one_half_both_ranges_become_alike(rows: list[float], data: st.DataObject) -> None:
    """Equation 8 of arXiv 1906.04721: r1 / s = s r2 for every channel (up to the one factor of the gauge)."""
    columns = data.draw(st.lists(st.floats(2.0**-6, 1.0), min_size=len(rows), max_size=len(rows)))
    scale = np.exp2(divisors(_ranges(rows, columns), Strength(alpha=0.5, limit=8))[1:])
    quotient = (np.array(rows) / scale) / (np.array(columns) * scale)
    np.testing.assert_allclose(quotient, quotient[0], rtol=1e-9)


@given(MAGNITUDES, st.floats(0.0, 1.0))
def test_no_channel_grows_beyond_the_largest(activation: list[float], alpha: float) -> None:
    ranges = _ranges(activation, [1.0] * len(activation))
    scaled = np.array(activation) * np.exp2(exponents(ranges, Strength(alpha=alpha))[1:].astype(np.float64))
    assert scaled.max() <= 1.0 + 1e-6
    exact = np.array(activation) / np.exp2(divisors(ranges, Strength(alpha=alpha))[1:])
    np.testing.assert_allclose(exact.max(), 1.0)


@given(MAGNITUDES)
def test_channels_that_depthwise_operators_alone_read_become_alike(activation: list[float]) -> None:
    ranges = _ranges(activation, [np.nan] * len(activation))
    scaled = np.array(activation) * np.exp2(exponents(ranges, Strength(alpha=0.25))[1:].astype(np.float64))
    assert scaled.min() > 0.5 * scaled.max() * (1 - 1e-6)


def test_dead_unknown_and_fixed_channels_stay_and_the_limit_holds() -> None:
    made = exponents(_ranges([1.0, 0.0, np.nan, 2.0**-12], [np.nan] * 4), Strength(limit=6))
    assert made.tolist() == [0, 0, 0, 0, 6]
    assert exponents(_ranges([1.0, 0.5], [0.0, 1.0]), Strength(alpha=0.5, limit=4)).min() >= -4


def test_families_have_a_gauge_each() -> None:
    ranges = Ranges(
        activation=np.array([np.nan, 0.25, 0.125, 1.0, 0.5]),
        weights=np.full(5, np.nan),
        family=np.array([0, 1, 1, 3, 3]),
    )
    assert exponents(ranges, Strength()).tolist() == [0, 2, 3, 0, 1]
