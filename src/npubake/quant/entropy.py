"""quant: the range of least relative entropy (KL), from counts. A histogram in, a Range out; no onnx.

S. Migacz, *8-bit inference with TensorRT*, GTC 2017, pages 38 to 39: for each threshold t the reference P is the linear
histogram of what lies inside, with everything outside added to its last bin; Q is the same histogram without the
outliers, its bins joined into as many groups as there are codes and each group's count spread evenly over those of its
bins that P uses; the t of least KL(P || Q) = sum p log(p / q) is taken. Here

- the linear histogram has BINS bins a sign, made from the counts over float bits by cutting their cumulative sum. It
  spans at most 16 times the 99.9 % quantile: beyond, one far value would leave the rest too few bins to show a loss.
  Where its least threshold wins, it is made again over a smaller span;
- both signs are cut at the same magnitude, and never beyond what was seen, as ONNX Runtime does it;
- exact zeros are left out of P and Q: every grid holds them, and half of a tensor behind a Relu would otherwise pull
  the threshold to where the first group holds nothing else;
- groups are those of the grid itself, whose middle one is centred on zero.

With as many codes as bins (int16) nothing is lost inside, and everything seen is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.quant.histogram import Histogram, Vector
from npubake.quant.ranges import Range, including_zero

BINS = 4096
_CANDIDATES = 64
_FARTHEST = 16.0
_ROUNDS = 12  # each makes the span at least 8 times smaller


def least_entropy_range(found: Histogram, levels: int, *, asymmetric: bool) -> Range:
    """The range of least KL at ``levels`` steps (both ends equal in magnitude where not asymmetric)."""
    low, high = (float(found.low[0]), float(found.high[-1])) if found.counts.size else (0.0, 0.0)
    seen = including_zero(low, high)
    values = found.without_zeros()
    if levels > BINS or values.counts.size == 0:
        return seen
    span = min(seen.absmax, _FARTHEST * _quantile(values.magnitudes(), 0.999))
    for _ in range(_ROUNDS):
        thresholds, divergences = _divergences(values, seen, span, levels if asymmetric else levels - 1, asymmetric)
        best = int(np.argmin(divergences))
        kept = float(thresholds[best])
        if best < len(thresholds) - 1 or len(thresholds) == 1:
            break
        span = 2.0 * kept
    return including_zero(max(seen.low, -kept), min(seen.high, kept))


def _quantile(values: Histogram, share: float) -> float:
    """The far edge of the bucket in which the share is reached; ``values`` ascend and are not empty."""
    below = np.cumsum(values.counts)
    return float(values.high[int(np.searchsorted(below, share * below[-1], side="left"))])


def _divergences(values: Histogram, seen: Range, span: float, levels: int, asymmetric: bool) -> tuple[Vector, Vector]:
    """Thresholds, descending from ``span``, and KL of each; +inf where nothing lies inside."""
    width = span / BINS
    both = not asymmetric or (seen.low < 0.0 < seen.high)
    least = min(BINS, levels // 2 if both else levels)
    bins = np.unique(np.linspace(least, BINS, _CANDIDATES).astype(np.int64))[::-1]
    kept = bins * width
    low = np.minimum(-seen.low, kept) if asymmetric else kept
    high = np.minimum(seen.high, kept) if asymmetric else kept
    steps = (low + high) / levels / width  # in bins
    sides = (_side(values, width), _side(values.mirrored(), width))
    total = float(values.counts.sum())
    inside = sum(side.count[bins] for side in sides)
    gained = sum(side.entropy(bins, steps, levels) for side in sides)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergences = gained / total - np.log(total) + np.log(inside)
    return np.asarray(kept), np.asarray(np.where(inside > 0.0, divergences, np.inf))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """The elements of one sign, by magnitude. bins: float64 [BINS]; count, used, entropies: float64 [BINS + 1], sums
    over the bins before: elements, bins with any, h log h. total: elements of this sign, outliers too.
    """

    bins: Vector
    count: Vector
    used: Vector
    entropies: Vector
    total: float

    def entropy(self, ends: NDArray[np.int64], steps: Vector, levels: int) -> Vector:
        """sum p log p - sum p log q of the bins below each of ``ends``, in elements; +inf where q is 0 and p is not."""
        outliers = self.total - self.count[ends]
        last = self.bins[ends - 1]
        reference = self.entropies[ends] - _x_log_x(last) + _x_log_x(last + outliers)
        places = (np.arange(levels + 2)[None, :] - 0.5) * steps[:, None]
        edges = np.clip(np.rint(places), 0, ends[:, None]).astype(np.int64)
        edges[:, -1] = ends
        counts = np.diff(self.count[edges], axis=1)
        used = np.diff(self.used[edges], axis=1)
        final = np.count_nonzero(edges[:, :-1] < ends[:, None], axis=1) - 1  # the group that holds the last bin
        rows = np.arange(len(ends))
        used[rows, final] += (last == 0.0) & (outliers > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(counts / used)
            spread = np.where(counts > 0.0, counts * logs, 0.0).sum(axis=1)
            beyond = np.where(outliers > 0.0, outliers * logs[rows, final], 0.0)
        return np.asarray(reference - spread - np.where(np.isnan(beyond), -np.inf, beyond))


def _side(values: Histogram, width: float) -> _Side:
    """The positive elements of ``values`` in BINS linear bins of ``width``, those beyond left out of the bins."""
    positive = values.low > 0.0
    low, high, counts = values.low[positive], values.high[positive], values.counts[positive]
    below = np.concatenate([[0.0], np.cumsum(counts)])
    places = np.stack([low, high], axis=1).reshape(-1)
    heights = np.stack([below[:-1], below[1:]], axis=1).reshape(-1)
    total = float(below[-1])
    if total == 0.0:
        count = np.zeros(BINS + 1)
    else:
        count = np.interp(np.arange(BINS + 1) * width, places, heights, left=0.0, right=total)
    bins = np.diff(count)
    return _Side(
        bins=bins,
        count=count,
        used=np.concatenate([[0.0], np.cumsum(bins > 0.0)]),
        entropies=np.concatenate([[0.0], np.cumsum(_x_log_x(bins))]),
        total=total,
    )


def _x_log_x(values: Vector) -> Vector:
    return np.asarray(values * np.log(np.where(values > 0.0, values, 1.0)))
