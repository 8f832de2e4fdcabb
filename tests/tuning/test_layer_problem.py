"""A layer to be learned: its input quantiser, its bias and its loss, against the same written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npubake.tuning.hessian import Grid
from npubake.tuning.layer_problem import InputQuantiser, judged, settled_bias
from npubake.tuning.learning import LearningSettings, learn_rounding
from tests.tuning.problems import RELU, problem


def test_a_quantiser_by_hand() -> None:
    quantiser = InputQuantiser(scale=0.5, zero_point=3.0, low=0, high=255)
    values = np.array([-9.0, -0.6, 0.2, 300.0], np.float32)
    assert quantiser.codes(values).tolist() == [-3.0, -1.0, 0.0, 252.0]
    assert quantiser(values).tolist() == [-1.5, -0.5, 0.0, 126.0]
    assert quantiser.bits == 8
    assert InputQuantiser(scale=1.0, zero_point=0.0, low=-32768, high=32767).bits == 15
    assert InputQuantiser(scale=1.0, zero_point=128.0, low=0, high=255).bits == 7


@pytest.mark.parametrize("clip", [(-np.inf, np.inf), RELU, (-1.0, 2.5)])
def test_a_settled_bias_leaves_no_mean_error(clip: tuple[float, float]) -> None:
    asked = problem(clip=clip)
    rng = np.random.default_rng(4)
    made = asked.outputs[:, :, :300] - asked.bias[:, :, None] + rng.normal(0.2, 0.1, (1, 6, 300))
    bias = settled_bias(asked, made, slice(0, 300))
    np.testing.assert_allclose(asked.errors(made, bias, slice(0, 300)).mean(axis=2), 0, atol=2e-3)
    np.testing.assert_allclose(bias, asked.bias - 0.2, atol=0.05)


def test_the_loss_is_that_of_the_unseen_positions() -> None:
    asked = problem()
    values = np.round(asked.weights, 1)
    loss, bias = judged(asked, values)
    made = values @ asked.quantiser(asked.inputs) + bias[:, :, None]
    differences = np.maximum(made, 0) - np.maximum(asked.outputs, 0)
    np.testing.assert_allclose(loss, (differences[:, :, 300:] ** 2).mean(axis=2).sum(), rtol=1e-4)
    np.testing.assert_allclose(differences[:, :, :300].mean(axis=2), 0, atol=2e-3)
    everything = replace(asked, seen=400)
    assert judged(everything, values)[0] > 0


def test_a_layer_without_a_bias_gets_none() -> None:
    asked = replace(problem(), free_bias=False)
    made = asked.outputs[:, :, :300] - asked.bias[:, :, None] + 0.2
    np.testing.assert_array_equal(settled_bias(asked, made, slice(0, 300)), asked.bias)
    settings = LearningSettings(epochs=2)
    grid = Grid(scales=np.abs(asked.weights).max(axis=2, keepdims=True) / 7, low=-7, high=7)
    learned = learn_rounding(asked, grid, grid.rounded(asked.weights), settings)
    np.testing.assert_array_equal(learned.bias, asked.bias)
