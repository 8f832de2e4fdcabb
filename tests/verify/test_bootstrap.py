"""The paired bootstrap: against scipy, and against cases whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from npubake.errors import StageError
from npubake.verify.bootstrap import paired_drop, resample_weights
from npubake.verify.coco import evaluate
from npubake.verify.evidence import Hits
from tests.verify.scenes import scene


def hits(right: Any) -> Hits:
    return Hits(names=tuple(map(str, range(len(right)))), right=tuple(bool(value) for value in right))


def test_every_resample_draws_as_many_pictures_and_repeats_for_its_seed() -> None:
    weights = resample_weights(37, 50, seed=4)
    assert weights.shape == (50, 37)
    assert np.all(weights.sum(axis=1) == 37)
    assert np.array_equal(weights, resample_weights(37, 50, seed=4))
    assert not np.array_equal(weights, resample_weights(37, 50, seed=5))


def test_the_interval_agrees_with_scipy() -> None:
    generator = np.random.default_rng(0)
    left = generator.random(300) < 0.9
    right = left & (generator.random(300) < 0.95)
    found = paired_drop(hits(left), hits(right))
    differences = left.astype(float) - right.astype(float)
    wanted = stats.bootstrap(
        (differences,), np.mean, confidence_level=0.9, method="percentile", n_resamples=4000, rng=generator
    ).confidence_interval
    assert found.drop == pytest.approx(differences.mean())
    assert found.lower == pytest.approx(wanted.low, abs=0.005)
    assert found.upper == pytest.approx(wanted.high, abs=0.005)


def test_equal_models_drop_by_nothing() -> None:
    right = np.arange(50) % 3 > 0
    found = paired_drop(hits(right), hits(right))
    assert (found.drop, found.lower, found.upper) == (0.0, 0.0, 0.0)


def test_swaps_that_cancel_are_noise_and_a_loss_on_every_picture_is_not() -> None:
    right = np.arange(100) % 2 == 0
    swapped = paired_drop(hits(right), hits(~right))
    assert swapped.drop == 0.0
    assert swapped.lower < -0.05
    lost = paired_drop(hits(np.ones(100)), hits(np.zeros(100)))
    assert lost.lower == lost.drop == 1.0


def test_models_measured_on_different_pictures_are_refused() -> None:
    with pytest.raises(StageError):
        paired_drop(hits(np.ones(3)), hits(np.ones(4)))
    with pytest.raises(StageError):
        paired_drop(hits(np.ones(0)), hits(np.ones(0)))


def test_a_worse_detector_is_seen() -> None:
    good, bad = scene(8, pictures=100, noise=1.0), scene(8, pictures=100, noise=9.0)
    matches = [evaluate(made.labels, made.names, made.found).matches for made in (good, bad)]
    found = paired_drop(matches[0], matches[1])
    assert found.lower > 0.05
    assert found.lower < found.drop < found.upper
