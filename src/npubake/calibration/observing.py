"""calibration: one pass over a sample set, counts of every quantisable tensor. Paths in, Statistics out.

The pass knows no method, lane or override. Its result is the same for any thread count: a tensor is counted whole, by
one thread, example after example. Memory holds one example's tensors and one table of counts a tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.channels import channel_axes
from npubake.calibration.counting import Tables, Tally
from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.calibration.statistics import Statistics
from npubake.errors import Fault, StageError
from npubake.graph.summary import GraphSummary

Progress = Callable[[int, int], None]


def observe(model: Path, graph: GraphSummary, samples: SampleSet, threads: int, progress: Progress) -> Statistics:
    """Statistics of every tensor of ``graph.quantisable()`` over all samples.

    StageError naming the example and the tensors where a value is NaN or Inf, or where there is no sample.
    """
    if samples.count == 0:
        raise StageError(Fault(what="the sample set holds no example", hint="give calibration data"))
    wanted = graph.quantisable()
    session = TensorSession(model, [name for name in wanted if name not in graph.inputs], threads)
    axes = channel_axes(graph)
    tallies = {name: Tally(axes[name]) for name in wanted}
    with ThreadPoolExecutor(max_workers=threads) as pool:
        workers = _Workers(tallies, pool, threads)
        for index in range(samples.count):
            feeds = samples.read(index)
            values = {**feeds, **session.run(feeds)}
            bad = workers.count(values)
            if bad:
                raise _not_finite(bad, values, samples.describe(index))
            del values, feeds
            progress(index + 1, samples.count)
    return Statistics(samples=samples.count, tensors={name: tally.result() for name, tally in tallies.items()})


class _Workers:
    """Threads that count one example's tensors together, each with its own scratch memory."""

    def __init__(self, tallies: Mapping[str, Tally], pool: ThreadPoolExecutor, threads: int) -> None:
        self._tallies = tallies
        self._pool = pool
        self._tables = [Tables() for _ in range(threads)]

    def count(self, values: Mapping[str, NDArray[Any]]) -> list[str]:
        """Names of the tensors with a NaN or Inf, in the tallies' order. Whoever is free takes the next largest."""
        waiting = deque(sorted(self._tallies, key=lambda name: -values[name].size))

        def work(tables: Tables) -> list[str]:
            bad: list[str] = []
            while True:
                try:
                    name = waiting.popleft()
                except IndexError:
                    return bad
                if not self._tallies[name].add(values[name], tables):
                    bad.append(name)

        bad = {name for part in self._pool.map(work, self._tables) for name in part}
        return [name for name in self._tallies if name in bad]


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
