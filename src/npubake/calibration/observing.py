"""calibration: one pass over a sample set, counts of every quantisable tensor. Paths in, Statistics out.

The pass knows no method, lane or override. Its result is the same for any thread count: a tensor is counted whole, by
one thread, example after example. Memory holds one example's tensors and one table of counts a tensor.
"""

from __future__ import annotations

import threading
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
        for index in range(samples.count):
            feeds = samples.read(index)
            values = {**feeds, **session.run(feeds)}
            bad = _count(tallies, values, pool)
            if bad:
                raise _not_finite(bad, values, samples.describe(index))
            del values, feeds
            progress(index + 1, samples.count)
    return Statistics(samples=samples.count, tensors={name: tally.result() for name, tally in tallies.items()})


def _count(tallies: Mapping[str, Tally], values: Mapping[str, NDArray[Any]], pool: ThreadPoolExecutor) -> list[str]:
    """Count one example; names of the tensors with a NaN or Inf, in the tallies' order. Largest first, for balance."""
    order = sorted(tallies, key=lambda name: -values[name].size)
    fine = dict(zip(order, pool.map(lambda name: tallies[name].add(values[name], _tables()), order), strict=True))
    return [name for name in tallies if not fine[name]]


_OF_THREAD = threading.local()


def _tables() -> Tables:
    """This thread's scratch memory, which goes with the thread."""
    if not hasattr(_OF_THREAD, "tables"):
        _OF_THREAD.tables = Tables()
    tables: Tables = _OF_THREAD.tables
    return tables


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
