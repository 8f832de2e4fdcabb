"""Gradients by hand against finite differences, and Adam against its paper's formulas written out."""

from __future__ import annotations

import numpy as np
import pytest

from npubake.tuning.quantiser_gradients import (
    adam,
    fake_quantised,
    rounding_gradient,
    scale_gradient,
    soften,
    unrounded,
)

STEP = 1e-6


def test_fake_quantisation_by_hand() -> None:
    values = np.array([-9.0, -0.6, 0.24, 0.26, 9.0])
    assert fake_quantised(values, 0.5, -2, 3).tolist() == [-1.0, -0.5, 0.0, 0.5, 1.5]


def test_scale_and_zero_point_have_the_slopes_of_the_straight_through_quantiser() -> None:
    """The stand-in: what rounding adds to value / scale is held while scale or zero point move."""
    rng = np.random.default_rng(0)
    values, upstream = rng.normal(size=200) * 3, rng.normal(size=200)
    scale, zero, low, high = 0.37, 4.0, 0.0, 9.0

    def stand_in(scale_now: float, zero_now: float) -> float:
        held = np.rint(values / scale) - values / scale
        beyond = (values / scale < low - zero) | (values / scale > high - zero)
        end = np.where(values < 0, low, high) - zero_now
        return float((upstream * scale_now * np.where(beyond, end, values / scale_now + held)).sum())

    by_scale, by_zero = scale_gradient(values, scale, low - zero, high - zero, upstream)
    differences = (
        (stand_in(scale + STEP, zero) - stand_in(scale - STEP, zero)) / (2 * STEP),
        (stand_in(scale, zero + STEP) - stand_in(scale, zero - STEP)) / (2 * STEP),
    )
    np.testing.assert_allclose([by_scale.sum(), by_zero.sum()], differences, rtol=1e-6)
    assert (np.abs(values / scale - 0) > high).any()


def soft(variables: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    made = np.empty_like(variables)
    soften(variables, made)
    return made


def test_soft_rounding_runs_from_zero_to_one() -> None:
    assert soft(np.array([-30.0, 0.0, 30.0])).tolist() == [0.0, 0.5, 1.0]
    fractions = np.array([0.01, 0.3, 0.5, 0.77, 0.99])
    np.testing.assert_allclose(soft(unrounded(fractions)), fractions, rtol=1e-12)
    np.testing.assert_allclose(soft(unrounded(np.array([0.0, 1.0]))), [0.01, 0.99], rtol=1e-12)


@pytest.mark.parametrize("beta", [2.0, 8.5, 20.0])
@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_rounding_variables_have_the_slopes_of_loss_and_press(beta: float, weight: float) -> None:
    rng = np.random.default_rng(1)
    variables, slope = np.sort(rng.uniform(-2.2, 2.2, 40)), rng.normal(size=40)

    def loss(now: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        h = np.clip(1.2 / (1 + np.exp(-now)) - 0.1, 0, 1)
        return np.asarray(slope * h + weight * (1 - np.abs(2 * h - 1) ** beta))

    found = slope.copy()
    rounding_gradient(variables, found, beta, weight)
    wanted = (loss(variables + STEP) - loss(variables - STEP)) / (2 * STEP)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)
    beyond = np.ones(2)
    rounding_gradient(np.array([-9.0, 9.0]), beyond, beta, weight)
    assert beyond.tolist() == [0.0, 0.0]


def test_adam_is_that_of_its_paper() -> None:
    rng = np.random.default_rng(2)
    values, gradients = rng.normal(size=3), rng.normal(size=(5, 3))
    wanted, first, second = values.copy(), np.zeros(3), np.zeros(3)
    memory = np.zeros((2, 3))
    for step, gradient in enumerate(gradients, start=1):
        adam(values, gradient, memory, 0.01, step)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        wanted = wanted - 0.01 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-12)
    np.testing.assert_allclose(values, wanted, rtol=1e-10)
