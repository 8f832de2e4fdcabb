"""Ratios, bounds and rounding against fractions and brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npubake.fixedpoint.arithmetic import accumulator_bound, nearest_odd, quantise_scalar, round_half_even, scale_ratio
from npubake.quant.parameters import TensorParameters

SCALES = st.floats(2.0**-20, 2.0**20, width=32).map(Fraction)


@given(SCALES, SCALES, st.sampled_from([12, 24]))
def test_ratio_is_odd_and_precise(first: Fraction, second: Fraction, precision: int) -> None:
    ratio = first / second
    m, n = scale_ratio(ratio, precision)
    assert n % 2 == 1
    assert m >= 1
    assert abs(Fraction(m, n) / ratio - 1) <= Fraction(1, 2**precision)


def test_equal_scales_have_no_ratio() -> None:
    assert scale_ratio(Fraction(1), 12) == (1, 1)


@given(st.fractions(0, 1000))
def test_nearest_odd_is_the_nearest(value: Fraction) -> None:
    odd = range(1, 1004, 2)
    assert nearest_odd(value) == min(odd, key=lambda candidate: (abs(candidate - value), -candidate))


def test_half_goes_to_even() -> None:
    assert [round_half_even(Fraction(n, 2)) for n in (-3, -1, 1, 3, 5)] == [-2, 0, 0, 2, 2]


def test_scalar_saturates() -> None:
    facts = TensorParameters(dtype="uint8", scale=0.5, zero_point=100, low=-50.0, high=77.5)
    assert [quantise_scalar(Fraction(value), facts) for value in (-1000, -1, 1000)] == [-100, -2, 155]


@given(
    st.lists(st.integers(-127, 127), min_size=1, max_size=4),
    st.integers(-5000, 5000),
    st.integers(-255, 0),
    st.data(),
)
def test_no_partial_sum_exceeds_the_bound(weights: list[int], bias: int, low: int, data: st.DataObject) -> None:
    """All orders of adding, with every choice of extreme inputs; and the bound is reached by one of them."""
    high = low + 255
    bound = accumulator_bound(np.array([weights]), np.array([bias]), low, high)
    order = data.draw(st.sampled_from(list(permutations(range(len(weights) + 1)))))
    reached = 0
    for inputs in product((low, high), repeat=len(weights)):
        terms = [*(w * x for w, x in zip(weights, inputs, strict=True)), bias]
        partial = np.cumsum([terms[place] for place in order])
        assert np.abs(partial).max() <= bound
        reached = max(reached, sum(t for t in terms if t > 0), -sum(t for t in terms if t < 0))
    assert reached == bound
