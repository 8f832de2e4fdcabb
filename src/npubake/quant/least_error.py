"""quant: the range of least squared error, from counts. A histogram in, a Range out; no onnx.

With a step s = (high - low) / levels the expected squared error of a tensor is, summed over its elements x,

    low <= x <= high, |x| >= s/2:   s^2 / 12         (uniform rounding noise)
    |x| < s/2:                      x^2              (rounds to zero, which has a code; an exact zero costs nothing)
    x < low or x > high:            (x - end)^2      (clipping)

(Banner, Nahshan and Soudry, *Post training 4-bit quantization of convolutional networks*, 2019, equations 2 to 6, for
any density; the middle line is added here: sparse and heavy-tailed tensors hold most of their elements there.)
Candidate ends lie between the floor and what was seen; every pair of them is tried, the widest of the best taken.
Nothing below the floor is a candidate: the error of a tensor by itself says nothing about what its few large values
decide further on.
"""

from __future__ import annotations

import numpy as np

from npubake.quant.histogram import Histogram, Vector
from npubake.quant.ranges import Range, including_zero

_CANDIDATES = 64  # at each end


def least_error_range(found: Histogram, floor: Range, levels: int, *, asymmetric: bool) -> Range:
    """The range between ``floor`` and what was seen whose expected squared error is least at ``levels`` steps.

    asymmetric: the two ends are chosen apart; else both at one magnitude, with one step less (a code for each sign).
    """
    if asymmetric:
        lows, low_costs, low_counts = _candidates(found.mirrored(), -floor.low)
        highs, high_costs, high_counts = _candidates(found, floor.high)
        steps = (lows[:, None] + highs[None, :]) / levels
        outside = low_counts[:, None] + high_counts[None, :]
        costs = low_costs[:, None] + high_costs[None, :] + _rounding(found, steps, outside)
        low, high = np.unravel_index(int(np.argmin(costs)), costs.shape)
        return including_zero(-float(lows[low]), float(highs[high]))
    folded = found.magnitudes()
    ends, clipping, outside = _candidates(folded, floor.absmax)
    best = float(ends[int(np.argmin(clipping + _rounding(found, 2.0 * ends / (levels - 1), outside)))])
    return Range(low=-best, high=best)


def _candidates(found: Histogram, floor: float) -> tuple[Vector, Vector, Vector]:
    """Upper ends from what was seen down to ``floor``, and of each the clipping error and the elements beyond it.

    They stand closer towards ``floor``, whatever is used: a tail is mostly empty, and the edges of used buckets alone
    would leave gaps. Of the bucket that an end cuts, the part beyond it is clipped.
    """
    most = max(float(found.high[-1]), 0.0)
    part_way = np.linspace(1.0, 0.0, _CANDIDATES) ** 2  # by squares: no power or logarithm, whose bits differ by CPU
    ends = floor + (most - floor) * part_way if most > floor else np.array([floor])
    ends[0] = max(most, floor)
    beyond = found.counts * found.means, found.counts * found.mean_squares
    count, total, squares = (_sums_from_above(part) for part in (found.counts, *beyond))
    first = np.searchsorted(found.high, ends, side="right")  # the first bucket with anything beyond
    place = np.minimum(first, len(found.counts) - 1)
    low, high, inside = found.low[place], found.high[place], found.counts[place]
    cut = (first < len(found.counts)) & (low < ends)
    whole = first + cut
    clipping = squares[whole] - 2.0 * ends * total[whole] + ends * ends * count[whole]
    width = np.where(cut, high - low, 1.0)
    part = np.where(cut, (high - ends) / width, 0.0)
    clipping += inside * part * np.where(cut, high - ends, 0.0) ** 2 / 3.0
    return ends, np.maximum(clipping, 0.0), count[whole] + inside * part


def _sums_from_above(values: Vector) -> Vector:
    """Of each index the sum from there to the end; one more entry than ``values``."""
    return np.concatenate([np.cumsum(values[::-1])[::-1], [0.0]])


def _rounding(found: Histogram, steps: Vector, outside: Vector) -> Vector:
    """Squared rounding error of all elements but ``outside`` of them, for each step."""
    folded = found.magnitudes()
    count = np.concatenate([[0.0], np.cumsum(folded.counts)])
    squares = np.concatenate([[0.0], np.cumsum(folded.counts * folded.mean_squares)])
    below = np.searchsorted(folded.high, steps / 2.0, side="right")
    return np.asarray(squares[below] + np.maximum(count[-1] - outside - count[below], 0.0) * steps * steps / 12.0)
