"""graph.transforms.ranges: outliers in exact numbers, and scaling."""

from __future__ import annotations

import numpy as np

from npubake.graph.transforms.ranges import ChannelRange


def test_outliers_are_cut_at_so_many_deviations() -> None:
    """Means 1, 0, 2; deviations 2, 1, 0 (squares: mean^2 + deviation^2)."""
    entry = ChannelRange(
        axis=1,
        low=np.array([-9.0, -1.0, 2.0]),
        high=np.array([4.0, 8.0, 2.0]),
        mean=np.array([1.0, 0.0, 2.0]),
        square=np.array([5.0, 1.0, 4.0]),
    )
    cut = entry.without_outliers(3.0)
    assert (cut.low.tolist(), cut.high.tolist()) == ([-5.0, -1.0, 2.0], [4.0, 3.0, 2.0])
    assert entry.magnitude.tolist() == [9.0, 8.0, 2.0]


def test_a_range_times_factors_is_that_of_the_product() -> None:
    values = np.random.default_rng(1).standard_normal((50, 3)).astype(np.float32)
    factors = np.array([0.5, 4.0, 1.0])

    def of(data: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> ChannelRange:
        wide = data.astype(np.float64)
        return ChannelRange(
            axis=1, low=data.min(axis=0), high=data.max(axis=0), mean=wide.mean(axis=0), square=(wide**2).mean(axis=0)
        )

    made, expected = of(values.astype(np.float64)).scaled(factors), of(values * factors)
    for key in ("low", "high", "mean", "square"):
        np.testing.assert_array_equal(getattr(made, key), getattr(expected, key))
