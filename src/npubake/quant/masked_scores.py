"""quant: how far the range of masked attention scores must reach down. Statistics and plain floats; no onnx.

A mask that comes in as data adds -1e4 or -3.4e38 to the scores that a row must not see. A range that holds such values
leaves no step for the scores themselves: of one decoder block in 16 bits, logits of 29 dB instead of 66. Their shares
are exp(s - max) / sum, which no output can tell from 0 once s lies far enough below the row's largest score. Where what
was seen falls into scores and, far below them, masked ones, the range ends a little below the lowest score.
Masks that are constants are raised to -128 in the float graph (graph/passes/clamp_mask_constants.py), which still takes
most codes of 8 bits: scores that they hide are left out likewise (a causal block, a8w8: 23 dB instead of 33).
"""

from __future__ import annotations

import math

import numpy as np

from npubake.calibration.statistics import TensorStatistics, ascending_buckets, bucket_edges

MASKED = -1000.0  # masks are -1e4 and below; scores of a trained attention stay within hundreds
CLAMPED = -128.0  # where masks that are constants stand: ``FLOOR`` of graph/passes/clamp_mask_constants.py
_BUCKET = 4.0  # width of a bucket of the statistics there
_TOGETHER = 64.0  # so many masked elements of a row, together, stay below half an output step
_STEP = 0.25  # ends lie on a coarse grid, so that no last bit of a logarithm decides one


def lowest_unmasked(seen: TensorStatistics) -> float | None:
    """The lowest value above the masked ones, None where nothing is masked or everything.

    Masked: at most ``MASKED``, and farther below every other value than these reach from end to end.
    """
    found = _apart(seen, MASKED)
    return found[0] if found else None


def _lowest_unclamped(seen: TensorStatistics) -> float | None:
    """The same of masks that are constants: what lies below is ``CLAMPED``, or a score with that added."""
    found = _apart(seen, CLAMPED / 2)
    if found is None:
        return None
    lowest, bottom, top = found
    beyond = (seen.maximum - lowest) / 2 + _BUCKET  # hidden scores reach a little farther than those that were kept
    low, high = min(lowest, 0.0) - beyond, max(seen.maximum, 0.0) + beyond
    return lowest if CLAMPED + low <= bottom and top <= CLAMPED + high else None


def _apart(seen: TensorStatistics, hidden: float) -> tuple[float, float, float] | None:
    """(lowest of the other values, lowest and highest masked one), to buckets, where values up to ``hidden`` are masked
    and lie apart.
    """
    order = ascending_buckets()
    filled = order[seen.buckets[order] > 0]
    low, high = bucket_edges()
    masked = high[filled] <= hidden
    if not masked.any() or masked.all():
        return None
    first = int(np.count_nonzero(masked))
    lowest = float(low[filled[first]])
    gap = lowest - float(high[filled[first - 1]])
    return (lowest, float(high[filled[0]]), float(low[filled[first - 1]])) if gap > seen.maximum - lowest else None


def lowest_score(seen: TensorStatistics, rank: int) -> float | None:
    """The lowest that no mask hides; None too where all of an example or head is masked: its scores are masks' values.

    rank: of the tensor; channels along its last axis are the positions of a row, of which a mask hides some whole.
    """
    lowest = lowest_unmasked(seen)
    if lowest is None:
        lowest = _lowest_unclamped(seen)
    if lowest is None:
        return None
    heads = seen.channels if seen.channels is not None and seen.channels.axis % rank != rank - 1 else None
    rows = [seen.sample_maxima] if heads is None else [seen.sample_maxima, heads.maxima]
    return None if any((maxima < lowest).any() for maxima in rows) else lowest


def reach_below(output_step: float) -> float:
    """How far below a row's largest score a masked one must lie: ``64 exp(-reach) <= output_step / 2``."""
    return math.ceil(math.log(2.0 * _TOGETHER / output_step) / _STEP) * _STEP
