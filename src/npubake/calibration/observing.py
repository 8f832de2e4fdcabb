"""calibration: one pass over a sample set, counts of every quantisable tensor. Paths in, Statistics out.

The pass knows no method, lane or override. Its result is the same for any thread count: a tensor is counted whole, by
one thread, in integers. Memory holds one example's tensors and one table of counts a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.counting import count_floats
from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.calibration.statistics import BUCKETS, Statistics, TensorStatistics, infinite_buckets
from npubake.errors import Fault, StageError
from npubake.graph.summary import GraphSummary

Progress = Callable[[int, int], None]


class _Tally:
    """Running counts of one tensor."""

    __slots__ = ("buckets", "count", "maximum", "minimum")

    def __init__(self) -> None:
        self.buckets: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)
        self.count = 0
        self.minimum, self.maximum = np.inf, -np.inf

    def add(self, values: NDArray[np.float32]) -> bool:
        """Count one example's values; False where one of them is NaN or Inf."""
        if values.size == 0:
            return True
        low, high = count_floats(values, self.buckets)
        self.count += values.size
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        return not infinite_buckets(self.buckets)

    def result(self) -> TensorStatistics:
        empty = self.count == 0
        return TensorStatistics(
            minimum=0.0 if empty else self.minimum,
            maximum=0.0 if empty else self.maximum,
            count=self.count,
            buckets=self.buckets,
        )


def observe(model: Path, graph: GraphSummary, samples: SampleSet, threads: int, progress: Progress) -> Statistics:
    """Statistics of every tensor of ``graph.quantisable()`` over all samples.

    StageError naming the example and the tensors where a value is NaN or Inf, or where there is no sample.
    """
    if samples.count == 0:
        raise StageError(Fault(what="the sample set holds no example", hint="give calibration data"))
    wanted = graph.quantisable()
    session = TensorSession(model, [name for name in wanted if name not in graph.inputs], threads)
    tallies = {name: _Tally() for name in wanted}
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for index in range(samples.count):
            feeds = samples.read(index)
            values = {**feeds, **session.run(feeds)}
            bad = _count(tallies, values, pool)
            if bad:
                raise _not_finite(bad, values, samples.describe(index))
            del values, feeds
            progress(index + 1, samples.count)
    return Statistics(samples=samples.count, tensors={name: tally.result() for name, tally in tallies.items()})


def _count(tallies: Mapping[str, _Tally], values: Mapping[str, NDArray[Any]], pool: ThreadPoolExecutor) -> list[str]:
    """Count one example; names of the tensors with a NaN or Inf, in the tallies' order. Largest first, for balance."""
    order = sorted(tallies, key=lambda name: -values[name].size)
    fine = dict(zip(order, pool.map(lambda name: tallies[name].add(values[name]), order), strict=True))
    return [name for name in tallies if not fine[name]]


def _not_finite(bad: list[str], values: Mapping[str, NDArray[Any]], where: str) -> StageError:
    kinds = "NaN" if np.isnan(values[bad[0]]).any() else "Inf"
    rest = f", and {len(bad) - 1} tensors after it" if len(bad) > 1 else ""
    return StageError(
        Fault(
            what=f"tensor {bad[0]!r} holds {kinds}{rest}",
            where=where,
            hint="no range can be made of it: look at this example, and at what computes the first tensor named",
        )
    )
