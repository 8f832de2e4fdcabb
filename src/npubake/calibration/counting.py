"""calibration: compiled kernels that count floats by their bits. numpy in, numpy out; they hold no lock while they run.

No OpenMP and no thread pool of numba's: a kernel runs in one thread and frees the interpreter's lock; who calls them
spreads tensors over threads. Counts are integers, so the order of threads cannot show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from npubake.calibration.statistics import BUCKETS, SHIFT

_LANES = 4  # neighbouring elements often share a bucket: separate tables keep the additions independent
_FEW = 1 << 16


@njit(nogil=True, cache=True)
def _count(values: Any, tables: Any) -> None:
    """Add the elements of a float32 vector to ``tables`` (int64 [4, BUCKETS])."""
    bits = values.view(np.uint32)
    whole = (values.size // 4) * 4
    for at in range(0, whole, 4):
        tables[0, bits[at] >> SHIFT] += 1
        tables[1, bits[at + 1] >> SHIFT] += 1
        tables[2, bits[at + 2] >> SHIFT] += 1
        tables[3, bits[at + 3] >> SHIFT] += 1
    for at in range(whole, values.size):
        tables[0, bits[at] >> SHIFT] += 1


@njit(nogil=True, cache=True)
def _count_few(values: Any, into: Any) -> None:
    """The same with one table, for vectors too short to pay for four."""
    bits = values.view(np.uint32)
    for at in range(values.size):
        into[bits[at] >> SHIFT] += 1


def count_floats(values: NDArray[np.float32], into: NDArray[np.int64]) -> tuple[float, float]:
    """Add the buckets of ``values`` to ``into`` (int64 [16384]) and return exact (minimum, maximum).

    A negative zero counts in its own bucket, and as 0.0 in the extremes. NaN makes the extremes meaningless: callers
    look at the buckets of exponent 255 first.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.size < _FEW:
        _count_few(flat, into)
    else:
        tables = np.zeros((_LANES, BUCKETS), np.int64)
        _count(flat, tables)
        into += tables.sum(axis=0)
    return float(flat.min()) + 0.0, float(flat.max()) + 0.0
