"""quant: thresholds against numpy's own sorting and quantiles of the very values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.calibration.statistics import BUCKETS, TensorStatistics
from npubake.quant.ranges import Range
from npubake.quant.thresholds import Threshold, interpolated_quantile, measured_range


def counted(values: NDArray[np.float32]) -> TensorStatistics:
    """Statistics by the format's definition (bit pattern shifted right by 18), independent of the observing code."""
    return TensorStatistics(
        minimum=float(values.min()) + 0.0,
        maximum=float(values.max()) + 0.0,
        count=values.size,
        buckets=np.bincount((values + np.float32(0)).view(np.uint32) >> 18, minlength=BUCKETS).astype(np.int64),
    )


VALUES = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=200).map(lambda data: np.array(data, np.float32))


@settings(max_examples=60)
@given(VALUES, st.floats(0.0, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_sorted_value(values: NDArray[np.float32], q: float) -> None:
    """At most one bucket, 1/32 of the value, from what sorting gives (denormal buckets are 2**-131 wide)."""
    exact = float(np.sort(values)[max(int(np.ceil(q * values.size)) - 1, 0)])
    found = interpolated_quantile(counted(values), q)
    assert abs(found - exact) <= abs(exact) / 32 + 2.0**-130


@settings(max_examples=60)
@given(VALUES, st.floats(0.5, 1.0), st.booleans())
def test_no_range_goes_beyond_what_was_seen_and_all_hold_zero(
    values: NDArray[np.float32], percentile: float, asymmetric: bool
) -> None:
    threshold = Threshold(method="percentile", percentile=percentile, asymmetric=asymmetric)
    span = measured_range(counted(values), threshold)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    assert max(-span.low, span.high) <= max(-low, high)
    if asymmetric:
        assert low <= span.low <= 0 <= span.high <= high
    else:
        assert span.low == -span.high


def test_percentile_of_a_normal_sample_agrees_with_numpy() -> None:
    values = np.random.default_rng(7).normal(size=200_000).astype(np.float32)
    span = measured_range(counted(values), Threshold(method="percentile", percentile=0.99, asymmetric=True))
    low, high = np.quantile(values, [0.005, 0.995])
    assert span.low == pytest.approx(low, rel=0.02)
    assert span.high == pytest.approx(high, rel=0.02)


def test_interpolation_inside_one_bucket_is_linear() -> None:
    """1024 equal steps over [1, 1 + 1/32), one bucket: the quantile is the straight line between its ends."""
    values = (1 + np.arange(1024) / (1024 * 32)).astype(np.float32)
    statistics = counted(values)
    width = statistics.maximum - statistics.minimum
    assert np.count_nonzero(statistics.buckets) == 1
    for q in (0.25, 0.5, 0.75):
        assert interpolated_quantile(statistics, q) == pytest.approx(1 + q * width, rel=1e-12)


def test_percentile_drops_an_outlier_that_minmax_keeps() -> None:
    values = np.concatenate([np.linspace(-1, 1, 100_000), [1000.0]]).astype(np.float32)
    assert measured_range(counted(values), Threshold()).high == 1000.0
    assert measured_range(counted(values), Threshold(method="percentile", percentile=0.999)).high <= 1.0


def test_a_percentile_of_one_is_minmax() -> None:
    values = np.array([-3.0, 0.1, 7.0], np.float32)
    assert measured_range(counted(values), Threshold(method="percentile", percentile=1.0, asymmetric=True)) == Range(
        low=-3, high=7
    )


def test_minmax_takes_the_exact_ends_not_those_of_buckets() -> None:
    values = np.array([-0.123456, 6.54321], np.float32)
    assert measured_range(counted(values), Threshold(asymmetric=True)) == Range(
        low=float(values[0]), high=float(values[1])
    )


@pytest.mark.parametrize("percentile", [0.49, 0.0, 1.001, 99.9])
def test_an_impossible_percentile_is_refused(percentile: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        measured_range(counted(np.ones(3, np.float32)), Threshold(method="percentile", percentile=percentile))


def test_statistics_without_a_finite_value_are_refused() -> None:
    nothing = np.zeros(BUCKETS, np.int64)
    for low, high, count in ((0.0, 0.0, 0), (float("nan"), 1.0, 3), (0.0, float("inf"), 3)):
        with pytest.raises(ValueError, match="no finite value"):
            measured_range(TensorStatistics(minimum=low, maximum=high, count=count, buckets=nothing), Threshold())
