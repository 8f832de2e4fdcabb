"""quant: the used buckets of one tensor as numbers, in ascending order. Statistics in, arrays out; no onnx.

The elements of a bucket are taken as spread evenly between its edges, which are first cut to the exact minimum and
maximum of the tensor. A bucket is 1/32 of its value wide, so what is made of it is known to that share at worst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.statistics import TensorStatistics, ascending_buckets, bucket_edges

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """low, high, counts: float64 [used buckets], ascending; low <= high, equal for a single value."""

    low: Vector
    high: Vector
    counts: Vector

    @property
    def mean_squares(self) -> Vector:
        """Mean of x*x inside each bucket: (low^2 + low high + high^2) / 3."""
        return (self.low * self.low + self.low * self.high + self.high * self.high) / 3.0

    @property
    def means(self) -> Vector:
        return (self.low + self.high) / 2.0

    def mirrored(self) -> Histogram:
        """The same of the values times -1."""
        return Histogram(low=-self.high[::-1], high=-self.low[::-1], counts=self.counts[::-1])

    def magnitudes(self) -> Histogram:
        """The same of the absolute values, ascending by the far edge."""
        negative = self.high <= 0.0
        low = np.where(negative, -self.high, self.low)
        high = np.where(negative, -self.low, self.high)
        order = np.argsort(high, kind="stable")
        return Histogram(low=low[order], high=high[order], counts=self.counts[order])

    def without_zeros(self) -> Histogram:
        """Without the two buckets that touch zero: exact zeros, and what is below 2**-131."""
        kept = (self.low > 0.0) | (self.high < 0.0)
        return Histogram(low=self.low[kept], high=self.high[kept], counts=self.counts[kept])


def histogram(statistics: TensorStatistics) -> Histogram:
    """The used finite buckets of a tensor."""
    order = ascending_buckets()
    counts = statistics.buckets[order]
    used = np.flatnonzero(counts)
    low, high = (edges[order[used]] for edges in bucket_edges())
    return Histogram(
        low=np.clip(low, statistics.minimum, statistics.maximum),
        high=np.clip(high, statistics.minimum, statistics.maximum),
        counts=counts[used].astype(np.float64),
    )
