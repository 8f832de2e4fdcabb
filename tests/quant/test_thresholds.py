"""quant: thresholds against numpy's own sorting and quantiles of the very values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.calibration.statistics import BUCKETS, TensorStatistics
from npubake.quant.ranges import Range
from npubake.quant.thresholds import (
    INT16_LEVELS,
    METHODS,
    UINT8_LEVELS,
    MethodName,
    Threshold,
    interpolated_quantile,
    measured_range,
)


def counted(values: NDArray[np.float32]) -> TensorStatistics:
    """Statistics by the format's definition (bit pattern shifted right by 18), independent of the observing code."""
    return TensorStatistics(
        minimum=float(values.min()) + 0.0,
        maximum=float(values.max()) + 0.0,
        count=values.size,
        buckets=np.bincount((values + np.float32(0)).view(np.uint32) >> 18, minlength=BUCKETS).astype(np.int64),
        sample_minima=values[:1],
        sample_maxima=values[:1],
    )


VALUES = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=200).map(lambda data: np.array(data, np.float32))


@settings(max_examples=60)
@given(VALUES, st.floats(0.0, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_sorted_value(values: NDArray[np.float32], q: float) -> None:
    """At most one bucket, 1/32 of the value, from what sorting gives (denormal buckets are 2**-131 wide)."""
    exact = float(np.sort(values)[max(int(np.ceil(q * values.size)) - 1, 0)])
    found = interpolated_quantile(counted(values), q)
    assert abs(found - exact) <= abs(exact) / 32 + 2.0**-130


@settings(max_examples=150)
@given(VALUES, st.sampled_from(METHODS), st.floats(0.5, 1.0), st.booleans(), st.sampled_from([255, 65535]))
def test_no_range_goes_beyond_what_was_seen_and_all_hold_zero(
    values: NDArray[np.float32], method: MethodName, percentile: float, asymmetric: bool, levels: int
) -> None:
    threshold = Threshold(method=method, percentile=percentile, asymmetric=asymmetric)
    span = measured_range(counted(values), threshold, levels)
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
    assert measured_range(counted(values), Threshold(method="minmax")).high == 1000.0
    assert measured_range(counted(values), Threshold(method="percentile", percentile=0.999)).high <= 1.0


def test_a_percentile_of_one_is_minmax() -> None:
    values = np.array([-3.0, 0.1, 7.0], np.float32)
    assert measured_range(counted(values), Threshold(method="percentile", percentile=1.0, asymmetric=True)) == Range(
        low=-3, high=7
    )


def test_minmax_takes_the_exact_ends_not_those_of_buckets() -> None:
    values = np.array([-0.123456, 6.54321], np.float32)
    assert measured_range(counted(values), Threshold(method="minmax", asymmetric=True)) == Range(
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


def test_mean_minmax_is_the_mean_of_the_samples_own_extremes() -> None:
    found = TensorStatistics(
        minimum=-8.0,
        maximum=5.0,
        count=6,
        buckets=np.zeros(BUCKETS, np.int64),
        sample_minima=np.array([-8.0, 0.5, -1.0], np.float32),
        sample_maxima=np.array([1.0, 3.25, 5.0], np.float32),
    )
    assert measured_range(found, Threshold(method="mean_minmax")) == Range(low=-8.5 / 3, high=9.25 / 3)
    assert measured_range(found, Threshold(method="mean_minmax", asymmetric=False)) == Range(
        low=-9.25 / 3, high=9.25 / 3
    )


def test_mean_minmax_needs_the_extremes_of_each_sample() -> None:
    bare = TensorStatistics(minimum=0.0, maximum=1.0, count=2, buckets=np.zeros(BUCKETS, np.int64))
    with pytest.raises(ValueError, match="each sample"):
        measured_range(bare, Threshold(method="mean_minmax"))


def squared_error(values: NDArray[np.float32], low: float, high: float, levels: int) -> float:
    """Mean squared error of the affine grid over low..high, value by value."""
    step = (high - low) / levels
    zero = np.rint(-low / step)
    codes = np.clip(np.rint(values / step) + zero, 0, levels)
    return float(np.mean((values - step * (codes - zero)) ** 2))


HEAVY = {
    "students_t": np.random.default_rng(11).standard_t(3, size=40_000),
    "behind_a_relu": np.maximum(np.random.default_rng(12).standard_t(4, size=40_000), 0.0),
    "skewed": np.random.default_rng(13).lognormal(0.0, 1.0, size=40_000) - 1.0,
    "one_sign": -np.random.default_rng(14).exponential(2.0, size=40_000),
}


@pytest.mark.parametrize("name", sorted(HEAVY))
@pytest.mark.parametrize("asymmetric", [True, False])
def test_mse_is_as_good_as_trying_every_range_on_the_values_themselves(name: str, asymmetric: bool) -> None:
    values = HEAVY[name].astype(np.float32)
    span = measured_range(counted(values), Threshold(method="mse", asymmetric=asymmetric))
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    # the floor is known to one bucket
    least_low, least_high = (min(max(q * 33 / 32, low), high) for q in np.quantile(values, [0.0005, 0.9995]))
    if not asymmetric:
        ends = np.geomspace(max(-least_low, least_high), max(-low, high), 60)
        tried = [squared_error(values, -end, end, 254) for end in ends]
        found = squared_error(values, span.low, span.high, 254)
    else:
        lows = np.linspace(min(least_low, 0.0), low, 25)
        highs = np.linspace(max(least_high, 0.0), high, 25)
        tried = [squared_error(values, a, b, 255) for a in lows for b in highs]
        found = squared_error(values, span.low, span.high, 255)
    assert found <= 1.02 * min(tried)
    assert found < squared_error(values, *((low, high) if asymmetric else (-max(-low, high), max(-low, high))), 255)


def test_mse_never_goes_below_the_quantile() -> None:
    """Half a million values within 1e-3 and a saturated one at 6 of every 500: least error alone would cut the 6."""
    values = np.random.default_rng(4).normal(0, 1e-3, size=500_000).astype(np.float32)
    values[::500] = 6.0
    assert measured_range(counted(values), Threshold(method="mse")).high == 6.0


def test_mse_keeps_everything_where_the_steps_are_fine() -> None:
    values = np.random.default_rng(6).normal(size=20_000).astype(np.float32)
    eight, sixteen = (measured_range(counted(values), Threshold(method="mse"), levels) for levels in (15, INT16_LEVELS))
    assert sixteen == measured_range(counted(values), Threshold(method="minmax"))
    assert eight.high < sixteen.high


def test_entropy_differs_from_minmax_on_outliers_and_keeps_clean_data() -> None:
    generator = np.random.default_rng(9)
    outliers = np.concatenate([generator.normal(size=100_000), [90.0, -70.0]]).astype(np.float32)
    clean = generator.uniform(-1, 1, size=100_000).astype(np.float32)
    for asymmetric in (True, False):
        threshold = Threshold(method="entropy", asymmetric=asymmetric)
        assert measured_range(counted(outliers), threshold, UINT8_LEVELS).absmax < 10.0
        assert measured_range(counted(clean), threshold, UINT8_LEVELS).absmax > 0.95
        assert measured_range(counted(outliers), threshold, INT16_LEVELS).absmax == 90.0


def test_a_tensor_of_zeros_has_an_empty_range_by_every_method() -> None:
    for method in METHODS:
        assert measured_range(counted(np.zeros(50, np.float32)), Threshold(method=method)) == Range(low=0.0, high=0.0)


def test_auto_is_least_squared_error_until_it_is_tried() -> None:
    values = counted(np.random.default_rng(12).standard_t(2, size=10_000).astype(np.float32))
    assert Threshold().method == "auto"
    assert measured_range(values, Threshold()) == measured_range(values, Threshold(method="mse"))
