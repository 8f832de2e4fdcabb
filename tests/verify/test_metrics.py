"""Figures against scipy and against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance

from npubake.verify.metrics import EXACT_DB, Sums, compare

values = st.floats(-1e6, 1e6, width=32).filter(lambda value: value == 0 or abs(value) > 1e-6)
pairs = st.lists(st.tuples(values, values), min_size=1, max_size=50)


def exact(pair: list[tuple[float, float]]) -> tuple[Fraction, Fraction, Fraction, Fraction, Fraction]:
    rows = [(Fraction(a), Fraction(b)) for a, b in pair]
    return (
        sum((a * b for a, b in rows), Fraction(0)),
        sum((a * a for a, _ in rows), Fraction(0)),
        sum((b * b for _, b in rows), Fraction(0)),
        sum(((a - b) ** 2 for a, b in rows), Fraction(0)),
        max(abs(a - b) for a, b in rows),
    )


def sums(pair: list[tuple[float, float]]) -> Sums:
    left, right = np.array(pair, np.float32).T
    return compare(left, right)


@given(pairs)
def test_the_sums_are_those_of_rational_arithmetic(pair: list[tuple[float, float]]) -> None:
    found = sums(pair)
    product, reference, candidate, error, worst = exact(pair)
    scale = float(sum(abs(Fraction(a) * Fraction(b)) for a, b in pair))
    assert found.product == pytest.approx(float(product), rel=1e-12, abs=1e-12 * scale)
    for value, wanted in ((found.reference, reference), (found.candidate, candidate), (found.error, error)):
        assert value == pytest.approx(float(wanted), rel=1e-12)
    assert found.max_abs == pytest.approx(float(worst), rel=1e-15)


@given(pairs)
def test_sqnr_is_its_definition(pair: list[tuple[float, float]]) -> None:
    _, reference, _, error, _ = exact(pair)
    found = sums(pair).figures().sqnr_db
    if error == 0:
        assert found == EXACT_DB
    elif reference == 0:
        assert found == -EXACT_DB
    else:
        assert found == pytest.approx(10 * math.log10(reference / error), abs=1e-6)


def test_cosine_agrees_with_scipy() -> None:
    generator = np.random.default_rng(2)
    left = generator.normal(size=(3, 50, 50))
    right = left + 0.1 * generator.normal(size=left.shape)
    wanted = 1 - distance.cosine(left.ravel(), right.ravel())
    assert compare(left, right).figures().cosine == pytest.approx(wanted, abs=1e-12)


def test_figures_over_examples_are_those_of_all_elements_together() -> None:
    generator = np.random.default_rng(3)
    left, right = generator.normal(size=(2, 4, 1000))
    parts = Sums()
    for a, b in zip(left, right, strict=True):
        parts += compare(a, b)
    whole = compare(left, right).figures()
    assert parts.figures().cosine == pytest.approx(whole.cosine, rel=1e-12)
    assert parts.figures().sqnr_db == pytest.approx(whole.sqnr_db, rel=1e-12)
    assert parts.figures().max_abs == whole.max_abs == float(np.abs(left - right).max())


@pytest.mark.parametrize(
    ("left", "right", "cosine", "sqnr"),
    [
        ([0, 0], [0, 0], 1.0, EXACT_DB),
        ([0, 0], [0, 1], 0.0, -EXACT_DB),
        ([0, 1], [0, 0], 0.0, 0.0),
        ([3, 4], [3, 4], 1.0, EXACT_DB),
        ([1, 0], [-1, 0], -1.0, 10 * math.log10(1 / 4)),
        ([10, 0], [9, 0], 1.0, 20.0),
    ],
)
def test_signals_without_strength_or_without_error(
    left: list[float], right: list[float], cosine: float, sqnr: float
) -> None:
    figures = compare(np.array(left, np.float32), np.array(right, np.float32)).figures()
    assert figures.cosine == pytest.approx(cosine)
    assert figures.sqnr_db == pytest.approx(sqnr)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_a_value_that_is_not_finite_makes_every_figure_nan(value: float, side: int) -> None:
    pair = [np.ones(5, np.float32), np.ones(5, np.float32)]
    pair[side][2] = value
    total = Sums() + compare(np.ones(3), np.ones(3)) + compare(*pair)
    assert total.figures().to_json() == {"cosine": None, "sqnr_db": None, "max_abs": None}


def test_integers_and_half_floats_are_compared_exactly() -> None:
    left = np.array([2**24 + 1, -5], np.int64)
    assert compare(left, left + 1).max_abs == 1.0
    half = np.array([0.1, 65504], np.float16)
    assert compare(half, half.astype(np.float64)).error == 0.0


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float16", "float32", "float64", "bool"])
def test_an_affine_candidate_is_read_in_real_units(dtype: str) -> None:
    held = np.array([0, 1, 1, 0, 1]).astype(dtype) if dtype == "bool" else np.array([0, 7, 100, 3, 55]).astype(dtype)
    real = [0.375 * (int(value) - 7) for value in held]
    found = compare(np.array(real), held, factor=0.375, zero_point=7)
    assert (found.error, found.max_abs) == (0.0, 0.0)
    assert found.candidate == sum(value * value for value in real)


def test_tensors_of_different_sizes_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        compare(np.zeros(3), np.zeros(4))
