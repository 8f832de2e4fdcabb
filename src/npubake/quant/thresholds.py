"""quant: which range of a tensor is kept, from its counts. Statistics in, ``Range`` out; no onnx."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from npubake.calibration.statistics import TensorStatistics, ascending_buckets, bucket_edges
from npubake.quant.entropy import least_entropy_range
from npubake.quant.histogram import histogram
from npubake.quant.least_error import least_error_range
from npubake.quant.ranges import Range, including_zero

MethodName = Literal["auto", "minmax", "percentile", "entropy", "mse", "mean_minmax"]
METHODS: tuple[MethodName, ...] = ("auto", "minmax", "percentile", "entropy", "mse", "mean_minmax")
MEASURED_METHODS = METHODS[1:]
LEAST_KEPT = 0.999  # what ``mse`` keeps at least: without it, networks that saturate are ruined (docs/quantisation.md)
UINT8_LEVELS = 255
INT16_LEVELS = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How a range is chosen. The defaults are those of schemas/recipe.schema.json; a test compares them.

    method:
    ``auto`` leaves the choice to ``tune``, which tries several; until then it is ``mse``;
    ``minmax`` keeps everything seen;
    ``percentile`` keeps that fraction of the values and leaves out half of the rest at each end;
    ``entropy`` takes the range of least relative entropy (``quant.entropy``);
    ``mse`` that of least squared error (``quant.least_error``), but at least what ``percentile`` 0.999 keeps;
    ``mean_minmax`` the mean of the samples' own minima, and of their maxima.
    asymmetric: False makes both ends equal in magnitude (for uint8: zero point 128).
    """

    method: MethodName = "auto"
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


def measured_range(statistics: TensorStatistics, threshold: Threshold, levels: int = UINT8_LEVELS) -> Range:
    """The range that ``threshold`` keeps: holds zero, never goes beyond what was seen (made symmetric where asked).

    levels: steps from the lowest code to the highest, 255 for 8 bits and 65535 for 16; ``entropy`` and ``mse`` ask for
    them, and keep more where there are more. Raises ValueError where the statistics are empty or not finite, the
    percentile lies outside 0.5..1, or ``mean_minmax`` is asked of statistics without extremes of each sample.
    """
    if statistics.count < 1 or not (math.isfinite(statistics.minimum) and math.isfinite(statistics.maximum)):
        raise ValueError(f"no finite value in {statistics.count} elements")
    kept = _METHODS[threshold.method](statistics, threshold, levels)
    return kept if threshold.asymmetric else symmetric(kept)


def symmetric(span: Range) -> Range:
    """The range with both ends at the larger magnitude."""
    return Range(low=-span.absmax, high=span.absmax)


def _minmax(statistics: TensorStatistics, _threshold: Threshold, _levels: int) -> Range:
    return including_zero(statistics.minimum, statistics.maximum)


def _percentile(statistics: TensorStatistics, threshold: Threshold, _levels: int) -> Range:
    if not 0.5 <= threshold.percentile <= 1.0:
        raise ValueError(f"a percentile is a fraction from 0.5 to 1, not {threshold.percentile}")
    return _central(statistics, threshold.percentile)


def _central(statistics: TensorStatistics, share: float) -> Range:
    tail = (1.0 - share) / 2.0
    return including_zero(interpolated_quantile(statistics, tail), interpolated_quantile(statistics, 1.0 - tail))


def _entropy(statistics: TensorStatistics, threshold: Threshold, levels: int) -> Range:
    return least_entropy_range(histogram(statistics), levels, asymmetric=threshold.asymmetric)


def _mse(statistics: TensorStatistics, threshold: Threshold, levels: int) -> Range:
    floor = _central(statistics, LEAST_KEPT)
    return least_error_range(histogram(statistics), floor, levels, asymmetric=threshold.asymmetric)


def _mean_minmax(statistics: TensorStatistics, _threshold: Threshold, _levels: int) -> Range:
    """Exact sums (``math.fsum``), so that the order of the samples does not show."""
    count = len(statistics.sample_minima)
    if count == 0:
        raise ValueError("mean_minmax needs the extremes of each sample, and these statistics hold none")
    low, high = (math.fsum(ends.tolist()) / count for ends in (statistics.sample_minima, statistics.sample_maxima))
    return including_zero(low, high)


_METHODS: Mapping[MethodName, Callable[[TensorStatistics, Threshold, int], Range]] = {
    "auto": _mse,
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
    "mean_minmax": _mean_minmax,
}
