"""Rounding by the Hessian against the textbook form of GPTQ, brute force, and rounding to nearest."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.tuning.hessian import (
    Grid,
    HessianSettings,
    asymmetric_target,
    output_error,
    round_with_hessian,
)
from npubake.tuning.matrix_form import columns_at, matrix_forms
from npubake.tuning.moments import Moments, accumulate
from tests.tuning.layers import layer

Wide = NDArray[np.float64]


def correlated(rng: np.random.Generator, columns: int, samples: int = 400) -> Wide:
    """A covariance with unequal variances and strong correlations, as of real activations."""
    x = rng.normal(size=(columns, samples)) * rng.uniform(0.1, 2.0, (columns, 1))
    x += 0.8 * x[rng.permutation(columns)] + rng.normal(size=samples)
    return np.asarray(np.cov(x)).reshape(columns, columns)


def by_row(weights: Wide, limit: int) -> Grid:
    return Grid(scales=np.abs(weights).max(axis=2, keepdims=True) / limit, low=-limit, high=limit)


def quadratic(error: Wide, hessian: Wide) -> Wide:
    return np.asarray(np.einsum("grk,gkl,grl->gr", error, hessian, error))


def textbook(weights: Wide, hessian: Wide, scales: Wide, asked: HessianSettings, limit: int) -> Wide:
    """Algorithm 1 of arXiv 2210.17323 for one matrix [rows, columns], with LAPACK's inverse and Cholesky factor."""
    order = np.argsort(-np.diag(hessian), kind="stable") if asked.act_order else np.arange(len(hessian))
    damped = (hessian + np.eye(len(hessian)) * asked.damping * np.diag(hessian).mean())[order][:, order]
    inverse = np.linalg.cholesky(np.linalg.inv(damped)).T
    rest, codes = weights[:, order].copy(), np.empty(weights.shape)
    for column in range(len(hessian)):
        codes[:, order[column]] = np.clip(np.rint(rest[:, column] / scales), -limit, limit)
        error = (rest[:, column] - codes[:, order[column]] * scales) / inverse[column, column]
        rest[:, column:] -= np.outer(error, inverse[column, column:])
    return codes


@pytest.mark.parametrize("act_order", [True, False])
@pytest.mark.parametrize("damping", [0.01, 0.3])
@pytest.mark.parametrize(("rows", "columns", "block"), [(6, 5, 2), (4, 70, 128), (3, 70, 16), (1, 1, 1), (9, 33, 7)])
def test_codes_are_those_of_the_textbook(rows: int, columns: int, block: int, damping: float, act_order: bool) -> None:
    """Where a row of the textbook is worse than rounding to nearest, the latter leaves."""
    rng = np.random.default_rng(columns + rows)
    hessian, weights = correlated(rng, columns), rng.normal(size=(1, rows, columns))
    grid = by_row(weights, 7)
    asked = HessianSettings(block_size=block, damping=damping, act_order=act_order)
    found = round_with_hessian(weights, hessian[None], grid, asked)
    wanted = textbook(weights[0], hessian, grid.scales[0, :, 0], asked, 7)
    nearest = np.rint(weights[0] / grid.scales[0])
    damped = hessian + np.eye(columns) * damping * np.diag(hessian).mean()
    errors = [quadratic(weights - grid.scales * codes, damped[None])[0] for codes in (wanted, nearest)]
    np.testing.assert_array_equal(found[0], np.where((errors[0] <= errors[1])[:, None], wanted, nearest))


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 6), st.integers(1, 24), st.sampled_from([1, 7, 127])
)
@settings(max_examples=60, deadline=None)
def test_no_row_is_worse_than_nearest(seed: int, groups: int, rows: int, columns: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    hessian = np.stack([correlated(rng, columns) for _ in range(groups)])
    weights = rng.normal(size=(groups, rows, columns)) * np.exp2(rng.integers(-20, 20))
    grid = by_row(weights, limit)
    codes = round_with_hessian(weights, hessian, grid, HessianSettings())
    assert codes.dtype == np.int32
    assert np.abs(codes).max() <= limit
    hessian = hessian + np.eye(columns) * 0.01 * np.trace(hessian, axis1=1, axis2=2)[:, None, None] / columns
    made = quadratic(weights - grid.scales * codes, hessian)
    nearest = quadratic(weights - grid.scales * np.rint(weights / grid.scales), hessian)
    assert (made <= nearest * (1 + 1e-5)).all()


def test_the_error_falls_by_much_on_correlated_inputs() -> None:
    rng = np.random.default_rng(3)
    hessian, weights = correlated(rng, 60)[None], rng.normal(size=(1, 32, 60))
    grid = by_row(weights, 7)
    nearest = quadratic(weights - grid.scales * np.rint(weights / grid.scales), hessian).sum()
    codes = round_with_hessian(weights, hessian, grid, HessianSettings())
    assert quadratic(weights - grid.scales * codes, hessian).sum() < 0.6 * nearest


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_no_row_passes_the_bound_of_the_nearest_plane(seed: int, columns: int) -> None:
    """Unclipped, a column leaves half a step at most: e.H.e' <= sum of (U[j,j] * scale / 2)^2 (Babai 1986)."""
    rng = np.random.default_rng(seed)
    hessian, weights = correlated(rng, columns), rng.uniform(-9, 9, (1, 8, columns))
    damped = hessian + np.eye(columns) * 0.01 * np.diag(hessian).mean()
    upper = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]
    grid = Grid(scales=np.full((1, 8, 1), 0.7), low=-1000, high=1000)
    codes = round_with_hessian(weights, hessian[None], grid, HessianSettings(act_order=False))
    found = quadratic(weights - 0.7 * codes, damped[None])
    assert (found <= ((np.diag(upper) * 0.35) ** 2).sum() * (1 + 1e-5)).all()


def test_brute_force_bounds_it() -> None:
    """Four columns, four codes: no choice is below the best of all 256, and the best is nearly met on the whole."""
    rng = np.random.default_rng(2)
    every = np.array(list(itertools.product(range(-2, 2), repeat=4)), np.float64)
    totals = np.zeros(3)
    for _ in range(60):
        hessian, weights = correlated(rng, 4), rng.uniform(-1, 1, (1, 8, 4))
        grid = Grid(scales=np.full((1, 8, 1), 0.7), low=-2, high=1)
        errors = weights[0][:, None, :] - 0.7 * every
        best = np.einsum("rnk,kl,rnl->rn", errors, hessian, errors).min(axis=1)
        codes = round_with_hessian(weights, hessian[None], grid, HessianSettings())
        found = quadratic(weights - 0.7 * codes, hessian[None])[0]
        nearest = quadratic(weights - 0.7 * grid.rounded(weights), hessian[None])[0]
        assert (found >= best * (1 - 1e-6)).all()
        totals += [best.sum(), found.sum(), nearest.sum()]
    assert totals[1] - totals[0] < 0.3 * (totals[2] - totals[0])  # most of what can be gained is gained


@pytest.mark.parametrize("act_order", [True, False])
def test_independent_inputs_are_rounded_to_nearest(act_order: bool) -> None:
    rng = np.random.default_rng(4)
    weights = rng.normal(size=(2, 5, 40))
    grid = by_row(weights, 127)
    hessian = np.stack([np.diag(rng.uniform(0.1, 9, 40)), np.zeros((40, 40))])
    codes = round_with_hessian(weights, hessian, grid, HessianSettings(act_order=act_order))
    np.testing.assert_array_equal(codes, np.rint(weights / grid.scales))


def test_columns_never_read_are_rounded_to_nearest() -> None:
    rng = np.random.default_rng(5)
    hessian, weights = correlated(rng, 12), rng.normal(size=(1, 6, 12))
    hessian[3], hessian[:, 3] = 0, 0
    grid = by_row(weights, 7)
    codes = round_with_hessian(weights, hessian[None], grid, HessianSettings())
    np.testing.assert_array_equal(codes[..., 3], np.rint(weights / grid.scales)[..., 3])
    assert (codes != np.rint(weights / grid.scales)).any()


def test_a_singular_hessian_gives_codes() -> None:
    """Fewer samples than columns, copies of columns, next to no damping."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(20, 4))
    x[7] = x[3]
    hessian, weights = (x @ x.T)[None], rng.normal(size=(1, 5, 20))
    grid = by_row(weights, 127)
    codes = round_with_hessian(weights, hessian, grid, HessianSettings(damping=1e-12))
    nearest = quadratic(weights - grid.scales * np.rint(weights / grid.scales), hessian)
    assert (quadratic(weights - grid.scales * codes, hessian) <= nearest * (1 + 1e-5)).all()


def test_scales_by_group_of_columns_with_zero_points() -> None:
    """int4 weights, 8 columns a scale, asymmetric: codes keep their limits and the error falls."""
    rng = np.random.default_rng(7)
    hessian, weights = correlated(rng, 32)[None], rng.normal(0.3, 1.0, (1, 12, 32))
    blocks = weights.reshape(1, 12, 4, 8)
    low, high = blocks.min(axis=3), blocks.max(axis=3)
    scales = np.repeat((high - low) / 15, 8, axis=2)
    zeros = np.repeat(np.rint(-8 - low / ((high - low) / 15)), 8, axis=2)
    grid = Grid(scales=scales, low=-8, high=7, zero_points=zeros)
    codes = round_with_hessian(weights, hessian, grid, HessianSettings())
    assert codes.min() >= -8
    assert codes.max() <= 7
    nearest = np.clip(np.rint(weights / scales + zeros), -8, 7)
    np.testing.assert_array_equal(grid.rounded(weights), nearest)
    made = quadratic(weights - scales * (codes - zeros), hessian).sum()
    assert made < 0.7 * quadratic(weights - scales * (nearest - zeros), hessian).sum()


@pytest.mark.parametrize("name", ["grouped", "transpose_grouped", "gemm"])
def test_asymmetric_target_is_the_least_squares_solution(name: str) -> None:
    """Against numpy's lstsq on the centred columns themselves; next to no damping."""
    made = layer(name)
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    rng = np.random.default_rng(8)
    floats = [rng.normal(size=form.input_shape).astype(np.float32) for _ in range(40)]
    rounded = [x + 0.1 * rng.normal(size=x.shape).astype(np.float32) - 0.05 for x in floats]
    moments = Moments.empty(form, asymmetric=True)
    for index in range(40):
        accumulate(moments, form, rounded[index], index, positions=4 * form.positions, target=floats[index])
    every = np.arange(form.positions)
    t = np.concatenate([columns_at(form, x, every) for x in floats], axis=2).astype(np.float64)
    x = np.concatenate([columns_at(form, x, every) for x in rounded], axis=2).astype(np.float64)
    t, x = t - t.mean(axis=2, keepdims=True), x - x.mean(axis=2, keepdims=True)
    weights = form.to_matrix(made.weights).astype(np.float64)
    found = asymmetric_target(weights, moments, 1e-9)
    for group in range(form.groups):
        wanted = np.linalg.lstsq(x[group].T, (weights[group] @ t[group]).T, rcond=None)[0].T
        np.testing.assert_allclose(found[group], wanted, atol=2e-4)


def test_the_target_is_the_weights_where_both_inputs_are_the_same() -> None:
    made = layer("plain")
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    moments = Moments.empty(form, asymmetric=True)
    for index, x in enumerate(made.inputs(3)):
        accumulate(moments, form, x, index, target=x)
    weights = form.to_matrix(made.weights)
    np.testing.assert_allclose(asymmetric_target(weights, moments, 0.01), weights, atol=1e-6)


def test_rounding_towards_a_target() -> None:
    rng = np.random.default_rng(9)
    hessian, weights = correlated(rng, 24)[None], rng.normal(size=(1, 8, 24))
    target = weights + 0.2 * rng.normal(size=weights.shape)
    grid = by_row(weights, 127)
    codes = round_with_hessian(weights, hessian, grid, HessianSettings(), target)
    error = quadratic(target - grid.scales * codes, hessian).sum()
    assert error < 0.05 * quadratic(target - grid.scales * np.rint(weights / grid.scales), hessian).sum()


def test_output_error_is_the_quadratic_form() -> None:
    rng = np.random.default_rng(10)
    error, hessian = rng.normal(size=(3, 4, 9)), np.stack([correlated(rng, 9) for _ in range(3)])
    np.testing.assert_allclose(output_error(error, hessian), quadratic(error, hessian), rtol=1e-5)


def test_layers_in_parallel_have_the_same_codes() -> None:
    rng = np.random.default_rng(11)
    problems = [(rng.normal(size=(1, 9, size)), correlated(rng, size)[None]) for size in (20, 50, 90, 130)]

    def codes(at: int) -> bytes:
        weights, hessian = problems[at]
        return round_with_hessian(weights, hessian, by_row(weights, 7), HessianSettings()).tobytes()

    with ThreadPoolExecutor(max_workers=4) as pool:
        assert list(pool.map(codes, range(4))) == [codes(at) for at in range(4)]


@pytest.mark.parametrize("wrong", [{"block_size": 0}, {"damping": 0.0}, {"damping": 1.5}])
def test_settings_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="block_size"):
        HessianSettings(**wrong)  # type: ignore[arg-type]
