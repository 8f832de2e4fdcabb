"""Counts over the bits of a float, against struct, sorting and the definition of merging."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.calibration.archive import ArchiveWriter
from npubake.calibration.counting import Tables, Tally
from npubake.calibration.statistics import (
    BUCKETS,
    ChannelStatistics,
    Statistics,
    TensorStatistics,
    ascending_buckets,
    bucket_edges,
    merge,
)
from npubake.errors import StageError

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.lists(finite, min_size=1, max_size=60)


def bucket_of(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits) // 2**18


def tallied(*examples: NDArray[np.float32], axis: int = 0) -> TensorStatistics:
    tally, tables = Tally(axis), Tables()
    assert all(tally.add(values, tables) for values in examples)
    return tally.result()


def counted(values: list[float] | NDArray[np.float32]) -> TensorStatistics:
    return tallied(np.asarray(values, np.float32).reshape(-1, 1), axis=1)


def same(left: TensorStatistics, right: TensorStatistics) -> bool:
    """All equal; sums to float64 rounding where they were added in another order."""
    ends = (left.minimum, left.maximum, left.count) == (right.minimum, right.maximum, right.count)
    return ends and np.array_equal(left.buckets, right.buckets) and same_channels(left.channels, right.channels)


def same_channels(left: ChannelStatistics | None, right: ChannelStatistics | None) -> bool:
    assert left is not None
    assert right is not None
    extremes = np.array_equal(left.minima, right.minima) and np.array_equal(left.maxima, right.maxima)
    scale = np.sqrt(left.squares * 1000) + 1e-300  # |sum| <= sqrt(n * squares), n here below 1000
    sums = bool(np.all(np.abs(left.sums - right.sums) <= 1e-12 * scale))
    return left.axis == right.axis and extremes and sums and np.allclose(left.squares, right.squares, rtol=1e-12)


@given(finite)
def test_every_float_lies_between_the_edges_of_its_bucket(value: float) -> None:
    low, high = bucket_edges()
    assert low[bucket_of(value)] <= value <= high[bucket_of(value)]


def test_edges_are_the_first_and_last_pattern_of_each_bucket() -> None:
    low, high = bucket_edges()
    for bucket in (0, 1, 31, 4064, 8159, 8192, 8193, 12000, 16351):
        first, last = (
            struct.unpack("<f", struct.pack("<I", bits))[0] for bits in (bucket << 18, ((bucket + 1) << 18) - 1)
        )
        assert {low[bucket], high[bucket]} == {first, last}


def test_buckets_ascend_without_overlap_and_cover_all_finite_floats() -> None:
    low, high = bucket_edges()
    order = ascending_buckets()
    assert np.all(high[order][:-1] <= low[order][1:])
    assert high[order][-1] == float(np.finfo(np.float32).max) == -low[order][0]
    assert len(order) == 2 * 255 * 32


def test_a_bucket_is_at_most_a_32nd_of_its_value_wide() -> None:
    low, high = bucket_edges()
    normal = np.arange(32, 255 * 32)
    assert np.all(high[normal] - low[normal] < low[normal] / 32)


@given(vectors)
def test_counting_agrees_with_one_element_at_a_time(values: list[float]) -> None:
    result = counted(values)
    expected = np.zeros(BUCKETS, np.int64)
    for value in values:
        expected[bucket_of(value)] += 1
    assert np.array_equal(result.buckets, expected)
    assert (result.minimum, result.maximum) == (min(values), max(values))


def test_long_vectors_are_counted_as_short_ones() -> None:
    values = np.random.default_rng(5).standard_cauchy(200_003).astype(np.float32)
    expected = np.bincount(values.view(np.uint32) >> 18, minlength=BUCKETS)
    assert np.array_equal(counted(values).buckets, expected)


def test_a_negative_zero_is_zero_in_the_extremes() -> None:
    assert math.copysign(1.0, counted([-0.0]).minimum) == 1.0
    assert math.copysign(1.0, counted([-0.0, -1.0]).maximum) == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_seen(value: float) -> None:
    for shape in ((2, 1), (1, 2)):  # both kernels
        tally = Tally(0)
        assert not tally.add(np.array([1.0, value], np.float32).reshape(shape), Tables())
    largest = float(np.finfo(np.float32).max)
    assert Tally(0).add(np.array([[largest], [-largest]], np.float32), Tables())


@given(vectors, vectors, vectors)
def test_merging_is_associative_commutative_and_the_same_as_one_pass(
    a: list[float], b: list[float], c: list[float]
) -> None:
    parts = [Statistics(samples=1, tensors={"t": counted(values)}) for values in (a, b, c)]
    left = merge(merge(parts[0], parts[1]), parts[2])
    right = merge(parts[0], merge(parts[2], parts[1]))
    assert left.samples == right.samples == 3
    assert same(left.tensors["t"], right.tensors["t"])
    assert same(left.tensors["t"], counted(a + b + c))


def test_statistics_of_two_graphs_do_not_merge() -> None:
    one = Statistics(samples=1, tensors={"t": counted([1.0])})
    other = Statistics(samples=1, tensors={"u": counted([1.0])})
    with pytest.raises(StageError):
        merge(one, other)


def test_what_is_saved_is_loaded_and_saves_to_the_same_bytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    made = Statistics(
        samples=4,
        tensors={
            name: tallied(*generator.normal(size=(4, *shape)).astype(np.float32), axis=axis)
            for name, shape, axis in (("z/x", (2, 5, 3), 1), ("a", (7,), 0), ("m:0", (2, 0), 1), ("s", (3, 4), 1))
        },
    )
    made.save(tmp_path / "a.npz")
    loaded = Statistics.load(tmp_path / "a.npz")
    loaded.save(tmp_path / "b.npz")
    assert loaded.samples == 4
    assert list(loaded.tensors) == ["z/x", "a", "m:0", "s"]
    assert all(same(loaded.tensors[name], made.tensors[name]) for name in made.tensors)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_statistics_without_channels_are_saved_too(tmp_path: Path) -> None:
    buckets = np.bincount([bucket_of(2.0)], minlength=BUCKETS).astype(np.int64)
    bare = TensorStatistics(minimum=2.0, maximum=2.0, count=1, buckets=buckets)
    Statistics(samples=1, tensors={"bare": bare, "full": counted([1.0])}).save(tmp_path / "a.npz")
    loaded = Statistics.load(tmp_path / "a.npz").tensors
    assert loaded["bare"].channels is None
    assert loaded["bare"].sample_minima.size == 0
    assert same(loaded["full"], counted([1.0]))


def test_another_version_is_refused(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path / "a.npz") as archive:
        archive.json("statistics.json", {"version": 1, "samples": 1, "tensors": []})
    with pytest.raises(StageError) as caught:
        Statistics.load(tmp_path / "a.npz")
    assert caught.value.faults[0].where == "a.npz"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    made = Statistics(samples=1, tensors={"t": counted([1.0, 2.0])})
    made.save(tmp_path / "a.npz")
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(b"NUMPY") + 130] ^= 1
    (tmp_path / "a.npz").write_bytes(bytes(data))
    with pytest.raises(StageError):
        Statistics.load(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"something else")
    with pytest.raises(StageError):
        Statistics.load(tmp_path / "b.npz")
