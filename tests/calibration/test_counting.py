"""Facts of each channel and sample against numpy on the very values, for both kernels and their ragged ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.calibration.counting import Tables, Tally
from npubake.calibration.statistics import BUCKETS, TensorStatistics

SHAPES = [
    ((1, 3, 40, 50), 1),  # planes with lanes and a rest, counted in four tables
    ((2, 5, 7, 9), 1),
    ((1, 4, 31), 1),
    ((1, 4, 64), 1),
    ((3, 5, 16), 2),
    ((1, 700, 40), 2),
    ((1, 9, 1, 1), 1),
    ((6, 4, 2), 0),
    ((5,), 0),
]


def tallied(examples: NDArray[np.float32], axis: int) -> TensorStatistics:
    tally, tables = Tally(axis), Tables()
    assert all(tally.add(values, tables) for values in examples)
    assert not tables.counts.any()  # ready for the next tensor
    return tally.result()


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_channels_and_samples_agree_with_numpy(shape: tuple[int, ...], axis: int) -> None:
    scale = np.exp(np.random.default_rng(1).normal(size=(1, *shape)) * 3)
    examples = (np.random.default_rng(2).normal(size=(4, *shape)) * scale).astype(np.float32)
    found = tallied(examples, axis)
    assert found.channels is not None
    assert found.channels.axis == axis
    others = tuple(number for number in range(len(shape) + 1) if number != axis + 1)
    assert np.array_equal(found.channels.minima, examples.min(axis=others))
    assert np.array_equal(found.channels.maxima, examples.max(axis=others))
    wide = np.moveaxis(examples.astype(np.float64), axis + 1, 0).reshape(shape[axis], -1)
    for channel, values in enumerate(wide):
        # both sides round: an exact sum of the magnitudes bounds what n additions in any order can differ by
        allowed = values.size * 2.0**-53
        assert abs(found.channels.sums[channel] - math.fsum(values)) <= allowed * math.fsum(np.abs(values))
        exact = math.fsum(values * values)
        assert found.channels.squares[channel] == pytest.approx(exact, rel=allowed + 1e-15)
    rows = examples.reshape(4, -1)
    assert np.array_equal(found.sample_minima, rows.min(axis=1))
    assert np.array_equal(found.sample_maxima, rows.max(axis=1))
    assert (found.minimum, found.maximum, found.count) == (examples.min(), examples.max(), examples.size)
    assert np.array_equal(found.buckets, np.bincount(examples.view(np.uint32).ravel() >> 18, minlength=BUCKETS))


def test_sums_are_added_in_the_written_order() -> None:
    """32 lanes, the lanes in turn, then the rest; rows and examples in turn: the very bits, on any machine."""
    examples = np.random.default_rng(3).normal(size=(2, 2, 1, 70)).astype(np.float32)
    found = tallied(examples, 1)
    assert found.channels is not None
    total = 0.0
    for row in examples.reshape(-1, 70).astype(np.float64):
        lanes = [0.0] * 32
        for at in range(64):
            lanes[at % 32] += float(row[at])
        of_row = 0.0
        for value in (*lanes, *row[64:]):
            of_row += float(value)
        total += of_row
    assert found.channels.sums.tolist() == [total]


def test_a_tensor_without_elements_is_all_zeros() -> None:
    found = tallied(np.zeros((3, 2, 0), np.float32), 1)
    assert (found.minimum, found.maximum, found.count) == (0.0, 0.0, 0)
    assert found.sample_minima.tolist() == [0.0, 0.0, 0.0]


def test_a_scalar_is_one_channel() -> None:
    found = tallied(np.array([2.5, -1.0], np.float32), 0)
    assert found.channels is not None
    assert (found.channels.minima.tolist(), found.channels.sums.tolist()) == ([-1.0], [1.5])


def test_a_negative_zero_is_zero_in_every_extreme() -> None:
    found = tallied(np.full((1, 1, 3), -0.0, np.float32), 0)
    assert found.channels is not None
    for ends in (found.sample_minima, found.sample_maxima, found.channels.minima, found.channels.maxima):
        assert not np.signbit(ends).any()
