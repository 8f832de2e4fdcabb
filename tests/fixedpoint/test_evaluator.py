"""The evaluator's quick way: where float64 says which integer is nearest, 45 digits say the same."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.fixedpoint.evaluator import TAME, mp_function, rounded, surely_rounded

LIMITS = (-(2**40), 2**40)


@pytest.mark.parametrize("op_type", sorted(TAME))
@settings(max_examples=5, deadline=None)
@given(
    step=st.floats(2.0**-13, 3.0, width=32),
    scale=st.floats(2.0**-16, 0.25, width=32),
    seed=st.integers(0, 2**32 - 1),
)
def test_both_ways_give_the_same_integer(op_type: str, step: float, scale: float, seed: int) -> None:
    """Mul by another float64; all levels of 8 bits by their sign, and some of 16 bits."""
    rng = np.random.default_rng(seed)
    node = helper.make_node(op_type, ["x", "other"], ["y"])
    others = [float(rng.normal())] if op_type == "Mul" else []
    decided = 0
    for level in [*range(-130, 131, 7), *rng.integers(-32768, 32768, 40).tolist()]:
        exact = Fraction(step) * level
        try:
            quick = mp_function(node, [float(exact), *others], mpmath.fp)
        except OverflowError:
            continue
        sure = surely_rounded([float(exact), *others, quick], scale)
        if sure is None:
            continue
        decided += 1
        with mpmath.workdps(45):
            value = mp_function(node, [mpmath.mpf(exact.numerator) / exact.denominator, *map(mpmath.mpf, others)])
            assert sure == rounded(value, (Fraction(scale), *LIMITS)), level
    assert decided > 20


@pytest.mark.parametrize(
    ("values", "scale", "expected"),
    [
        ([0.5], 1.0, None),
        ([-1.5], 1.0, None),
        ([0.5 + 2.0**-36], 1.0, 1),
        ([0.5 + 2.0**-39], 1.0, None),
        ([0.5 - 2.0**-36], 1.0, 0),
        ([1e6, 0.5 + 2.0**-36], 1.0, None),  # what is large on the way may be off by more
        ([2.0, 0.25], 0.0625, 4),
        ([float("nan")], 1.0, None),
        ([float("inf"), 0.0], 1.0, None),
    ],
)
def test_near_a_tie_it_is_not_sure(values: list[float], scale: float, expected: int | None) -> None:
    assert surely_rounded(values, scale) == expected
