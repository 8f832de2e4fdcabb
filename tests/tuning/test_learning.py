"""Learned rounding and scales: gradients by finite differences, losses that fall, hard results that are judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.tuning.hessian import Grid
from npubake.tuning.layer_problem import LayerProblem, settled_bias
from npubake.tuning.learning import (
    LearnedRounding,
    LearningSettings,
    RoundingState,
    ScaleState,
    learn_rounding,
    learn_scales,
)
from tests.tuning.problems import RELU, problem

SHORT = LearningSettings(epochs=40, batch=64)


def by_row(weights: NDArray[np.float64], limit: int = 7) -> Grid:
    return Grid(scales=np.abs(weights).max(axis=2, keepdims=True) / limit, low=-limit, high=limit)


def plain_loss(asked: LayerProblem, grid: Grid, codes: NDArray[np.int32], bias: NDArray[np.float64]) -> float:
    """On the unseen positions, written out."""
    read = asked.quantiser.scale * np.clip(np.rint(asked.inputs[:, :, 300:] / asked.quantiser.scale), 0, 255)
    made = np.clip(grid.scales * codes @ read + bias[:, :, None], *asked.clip)
    return float(((made - np.clip(asked.outputs[:, :, 300:], *asked.clip)) ** 2).mean(axis=2).sum())


@pytest.mark.parametrize("clip", [(-np.inf, np.inf), RELU, (-1.0, 2.5)])
def test_gradients_of_rounding_are_those_of_the_loss(clip: tuple[float, float]) -> None:
    asked = problem(groups=2, rows=3, clip=clip)
    grid = by_row(asked.weights)
    state = RoundingState(asked, grid, grid.rounded(asked.weights))
    chosen = np.arange(5, 60)
    by_variable, by_bias = state.gradients(chosen, 20.0, 0.0)
    for at in [(0, 0, 0), (0, 2, 7), (1, 1, 19), (1, 2, 3)]:
        kept, losses = state.variables[at], []
        for shift in (5e-3, -5e-3):  # products keep 21 bits: smaller steps would measure their rounding
            state.variables[at] = kept + shift
            losses.append(state.loss(chosen))
        state.variables[at] = kept
        np.testing.assert_allclose(by_variable[at], (losses[0] - losses[1]) / 1e-2, rtol=1e-3, atol=1e-3)
    for row in [(0, 1), (1, 2)]:
        unit, kept, losses = np.sqrt(state.units[row]), state.bias[row], []
        for shift in (1e-3, -1e-3):
            state.bias[row] = kept + shift * unit
            losses.append(state.loss(chosen))
        state.bias[row] = kept
        np.testing.assert_allclose(by_bias[row], (losses[0] - losses[1]) / 2e-3, rtol=2e-3, atol=1e-3)


def test_learned_rounding_beats_nearest_on_unseen_positions() -> None:
    asked = problem()
    grid = by_row(asked.weights)
    start = grid.rounded(asked.weights)
    found = learn_rounding(asked, grid, start, SHORT)
    assert found.kept
    assert found.after < 0.7 * found.before
    assert np.abs(found.codes).max() <= 7
    assert set(np.unique(found.codes - np.floor(asked.weights / grid.scales)).tolist()) <= {-1.0, 0.0, 1.0}
    nearest = settled_bias(asked, grid.values(start) @ asked.quantiser(asked.inputs[:, :, :300]), slice(0, 300))
    np.testing.assert_allclose(plain_loss(asked, grid, start, nearest), found.before, rtol=1e-3)
    np.testing.assert_allclose(plain_loss(asked, grid, found.codes, found.bias), found.after, rtol=1e-3)


def test_what_is_no_better_is_not_kept() -> None:
    """The start is perfect: weights that are codes already, inputs on the grid."""
    asked = problem()
    weights = np.rint(asked.weights * 3) / 3
    inputs = asked.quantiser(asked.inputs).astype(np.float32)
    grid = Grid(scales=np.full((1, 6, 1), 1 / 3), low=-20, high=20)
    outputs = (weights @ inputs + asked.bias[:, :, None]).astype(np.float32)
    perfect = replace(asked, weights=weights, inputs=inputs, outputs=outputs)
    start = grid.rounded(weights)
    found = learn_rounding(perfect, grid, start, LearningSettings(epochs=1))
    assert found.before < 1e-9
    assert (found.codes == start).all()


def test_weights_in_any_order_of_memory_are_learned_alike() -> None:
    """Linear weights that are stored transposed come as a view."""
    asked = problem()
    turned = replace(asked, weights=np.asfortranarray(asked.weights), bias=np.asfortranarray(asked.bias))
    grid = by_row(asked.weights)
    codes = [
        learn_rounding(one, grid, grid.rounded(one.weights), LearningSettings(epochs=9)) for one in (asked, turned)
    ]
    assert codes[0].kept
    np.testing.assert_array_equal(codes[0].codes, codes[1].codes)


def test_the_same_codes_every_time() -> None:
    def run() -> LearnedRounding:
        asked = problem(seed=3)
        grid = by_row(asked.weights)
        return learn_rounding(asked, grid, grid.rounded(asked.weights), LearningSettings(epochs=5))

    first, second = run(), run()
    assert first.codes.tobytes() == second.codes.tobytes()
    assert (first.before, first.after) == (second.before, second.after)


def test_scales_are_learned_from_a_wrong_start() -> None:
    """A quantiser that clips at a third of the range, and weight scales twice too wide."""
    asked = problem()
    narrow = replace(asked, quantiser=replace(asked.quantiser, scale=asked.quantiser.scale / 3))
    fine = by_row(asked.weights)
    grid = Grid(scales=fine.scales * 2, low=-7, high=7)
    both = learn_scales(narrow, grid, frozenset({"activation_scale", "weight_scale"}), SHORT)
    assert both.kept
    assert both.after < 0.25 * both.before
    assert both.quantiser.scale > 1.5 * narrow.quantiser.scale
    assert (both.weight_scales < grid.scales).mean() > 0.8
    only = learn_scales(narrow, grid, frozenset({"activation_scale"}), SHORT)
    np.testing.assert_array_equal(only.weight_scales, grid.scales)
    assert both.after < only.after


def test_a_zero_point_is_learned_and_whole() -> None:
    """Inputs from -2 up, a quantiser that starts at 0: it must make room below."""
    asked = problem(clip=(-np.inf, np.inf))
    inputs = asked.inputs - np.float32(2)
    outputs = (asked.weights @ inputs + asked.bias[:, :, None]).astype(np.float32)
    moved = replace(asked, inputs=inputs, outputs=outputs, quantiser=replace(asked.quantiser, zero_point=20.0))
    found = learn_scales(moved, by_row(asked.weights, 127), frozenset({"zero_point", "activation_scale"}), SHORT)
    assert found.kept
    assert found.quantiser.zero_point == round(found.quantiser.zero_point)
    assert found.quantiser.zero_point > 30
    assert found.after < 0.5 * found.before


def test_shared_scales_stay_shared() -> None:
    asked = problem(groups=2)
    grid = Grid(scales=np.full((1, 1, 1), 1.0), low=-7, high=7)
    found = learn_scales(asked, grid, frozenset({"weight_scale"}), SHORT)
    assert found.weight_scales.shape == (1, 1, 1)
    assert found.weight_scales.item() < 1.0


def test_slopes_of_shared_and_single_scales_agree() -> None:
    asked = problem(groups=2)
    scale = float(np.abs(asked.weights).max() / 7)
    learn = frozenset({"weight_scale"})
    states = [
        ScaleState(asked, Grid(scales=np.full(shape, scale), low=-7, high=7), learn)  # type: ignore[arg-type]
        for shape in ((1, 1, 1), (2, 6, 1))
    ]
    shared, single = (state.gradients(np.arange(50))[2] for state in states)
    np.testing.assert_allclose(shared.item(), single.sum(), rtol=1e-9)


def test_rates_and_pressure() -> None:
    constant, cosine = (LearningSettings(learning_rate=0.2, schedule=name) for name in ("constant", "cosine"))
    assert [constant.rate(step, 10) for step in (0, 5, 9)] == [0.2] * 3
    np.testing.assert_allclose([cosine.rate(step, 10) for step in (0, 5, 10)], [0.2, 0.1, 0.0], atol=1e-12)
    asked = LearningSettings(press=3.0, start=0.2, beta=(20.0, 2.0))
    assert asked.pressure(1, 10) == (20.0, 0.0)
    np.testing.assert_allclose([asked.pressure(step, 10) for step in (2, 6, 10)], [(20, 0), (11, 0.75), (2, 3)])
    assert LearningSettings(epochs=3, batch=100).steps(1000) == 30
    assert LearningSettings(epochs=3, batch=100).steps(80) == 24


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"learning_rate": 0.0}])
def test_settings_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="epochs"):
        LearningSettings(**wrong)  # type: ignore[arg-type]
