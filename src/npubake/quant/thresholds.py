"""quant: which range of a tensor is kept, from its counts. Statistics in, ``Range`` out; no onnx."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from npubake.calibration.statistics import TensorStatistics, ascending_buckets, bucket_edges
from npubake.quant.ranges import Range, including_zero

MethodName = Literal["minmax", "percentile"]
METHODS: tuple[MethodName, ...] = ("minmax", "percentile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How a range is chosen. The defaults are those of schemas/recipe.schema.json; a test compares them.

    method: ``minmax`` keeps everything seen; ``percentile`` keeps that fraction of the values and leaves out half of
    the rest at each end. asymmetric: False makes both ends equal in magnitude (for uint8: zero point 128).
    """

    method: MethodName = "minmax"
    percentile: float = 0.9999
    asymmetric: bool = True


def interpolated_quantile(statistics: TensorStatistics, q: float) -> float:
    """The value below which the share ``q`` of the elements lies (0 <= q <= 1), from bucket counts.

    The elements of a bucket are taken as spread evenly between its edges, which are first cut to the exact minimum and
    maximum: ``edge + width * (q * count - elements before) / elements inside``. Deterministic: integer counts, then a
    few float64 operations in a fixed order. The error is at most the bucket's width, 1/32 of the value.
    """
    order = ascending_buckets()
    counts = statistics.buckets[order]
    below = np.cumsum(counts)
    target = q * float(statistics.count)
    place = int(np.searchsorted(below, target, side="left"))
    while counts[place] == 0:  # only for q = 0, where every empty bucket at the start satisfies the search
        place += 1
    low, high = (float(edges[order[place]]) for edges in bucket_edges())
    low, high = max(low, statistics.minimum), min(high, statistics.maximum)
    inside = (target - float(below[place] - counts[place])) / float(counts[place])
    return low + (high - low) * min(max(inside, 0.0), 1.0)


def measured_range(statistics: TensorStatistics, threshold: Threshold) -> Range:
    """The range that ``threshold`` keeps: holds zero, never goes beyond what was seen (made symmetric where asked).

    Raises ValueError where the statistics are empty or not finite, or the percentile lies outside 0.5..1.
    """
    if statistics.count < 1 or not (math.isfinite(statistics.minimum) and math.isfinite(statistics.maximum)):
        raise ValueError(f"no finite value in {statistics.count} elements")
    low, high = statistics.minimum, statistics.maximum
    if threshold.method == "percentile":
        if not 0.5 <= threshold.percentile <= 1.0:
            raise ValueError(f"a percentile is a fraction from 0.5 to 1, not {threshold.percentile}")
        tail = (1.0 - threshold.percentile) / 2.0
        low, high = interpolated_quantile(statistics, tail), interpolated_quantile(statistics, 1.0 - tail)
    kept = including_zero(low, high)
    return kept if threshold.asymmetric else symmetric(kept)


def symmetric(span: Range) -> Range:
    """The range with both ends at the larger magnitude."""
    return Range(low=-span.absmax, high=span.absmax)
