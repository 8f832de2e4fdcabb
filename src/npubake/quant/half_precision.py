"""quant: which tensors float16 cannot hold, by what was observed of them. Statistics in, names out; no model runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npubake.calibration.statistics import TensorStatistics, bucket_edges
from npubake.graph.summary import GraphSummary
from npubake.quant.ranges import DEAD_BELOW, FLOAT16_MAX, Range

FLOAT16_NORMAL = 2.0**-14  # least normal float16: below it each halving costs a bit
_FLUSHED = 2.0**-25  # half of the least float16: rounds to zero
_POLES = {"Div": 1, "Log": 0, "Reciprocal": 0}  # operator -> its input that zero makes infinite


def beyond_float16(
    summary: GraphSummary, statistics: Mapping[str, TensorStatistics], ranges: Mapping[str, Range]
) -> frozenset[str]:
    """Tensors of ``ranges`` that overflow in float16, that have nothing normal in it, or of which values that it rounds
    to zero are divided by (``eps`` of 1e-12 beside a channel of zeros). All that was seen counts, whatever is clipped.
    """
    seen = {name: entry.absmax for name, entry in statistics.items()}
    outside = {name for name, span in ranges.items() if out_of_range(max(seen.get(name, 0.0), span.absmax))}
    divided = {name for name in _divisors(summary) if name in statistics and _flushes(statistics[name])}
    return frozenset(outside | divided.intersection(ranges))


def out_of_range(largest: float) -> bool:
    """True where float16 ruins a tensor whose largest magnitude is this: it overflows, or nothing in it is normal."""
    return largest > FLOAT16_MAX or DEAD_BELOW <= largest < FLOAT16_NORMAL


def _divisors(summary: GraphSummary) -> set[str]:
    """What is divided by, or taken the logarithm of, also through a square root."""
    found: set[str] = set()
    for node in reversed(summary.nodes):
        place = 0 if node.op_type == "Sqrt" and found.intersection(node.outputs) else _POLES.get(node.op_type)
        if place is not None:
            found.add(node.inputs[place])
    return found


def _flushes(statistics: TensorStatistics) -> bool:
    """True where values were seen that are not zero and round to it. (The lowest bucket holds zero itself.)"""
    largest = np.max(np.abs(bucket_edges()), axis=0)
    smallest = np.min(np.abs(bucket_edges()), axis=0)
    return bool(np.any(statistics.buckets[(smallest > 0.0) & (largest <= _FLUSHED)]))
