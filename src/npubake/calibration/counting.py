"""calibration: compiled kernels that count floats by their bits. numpy in, numpy out; they hold no lock while they run.

One walk over a tensor, a row of one channel at a time: buckets, extremes and sums while the row is in the cache.
No OpenMP and no thread pool of numba's: a kernel runs in one thread and frees the interpreter's lock; who calls them
spreads tensors over threads. Counts are integers, and sums are float64 in an order that is written down here (32 lanes
of a row, the lanes in turn, then the rest; rows in turn; examples in turn), so no thread and no CPU can show.

Extremes are compared as integers: a float's *key* is its bit pattern as int32, the lower 31 bits flipped where the sign
is set. Keys ascend as the floats do, -NaN lowest and NaN highest, and integer comparisons vectorise where those of
floats, with their NaN, do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from npubake.calibration.statistics import BUCKETS, SHIFT, ChannelStatistics, TensorStatistics

_TABLES = 4  # neighbouring elements often share a bucket: separate tables keep the additions independent
_LANES = 32
_SIGN = BUCKETS >> 1
_OCTAVE = 32  # buckets of one exponent
_OCTAVE_SHIFT = 23
_LOWEST_FINITE = -0x7F800000  # key of the most negative finite float32
_HIGHEST_FINITE = 0x7F7FFFFF
_FLIP = 0x7FFFFFFF


@njit(nogil=True, cache=True)
def _extremes_of(row: Any) -> Any:
    """Lowest and highest key of a float32 vector."""
    bits = row.view(np.int32)
    lowest, highest = np.int32(_FLIP), np.int32(~_FLIP)
    for at in range(row.size):
        key = bits[at] ^ ((bits[at] >> np.int32(31)) & np.int32(_FLIP))
        lowest, highest = min(lowest, key), max(highest, key)
    return lowest, highest


@njit(nogil=True, cache=True)
def _sums_of(row: Any, lanes: Any, squares: Any) -> Any:
    """Sum of a float32 vector and of its squares, float64. lanes, squares: float64 [32], scratch."""
    total, total_squares = 0.0, 0.0
    whole = row.size // _LANES * _LANES
    if whole:
        for lane in range(_LANES):
            lanes[lane], squares[lane] = 0.0, 0.0
        for at in range(0, whole, _LANES):
            for lane in range(_LANES):
                value = np.float64(row[at + lane])
                lanes[lane] += value
                squares[lane] += value * value
        for lane in range(_LANES):
            total += lanes[lane]
            total_squares += squares[lane]
    for at in range(whole, row.size):
        value = np.float64(row[at])
        total += value
        total_squares += value * value
    return total, total_squares


@njit(nogil=True, cache=True)
def _count(row: Any, tables: Any) -> None:
    """Add the buckets of a float32 vector to ``tables``."""
    bits = row.view(np.uint32)
    whole = (row.size // 4) * 4
    for at in range(0, whole, 4):
        tables[0, bits[at] >> SHIFT] += 1
        tables[1, bits[at + 1] >> SHIFT] += 1
        tables[2, bits[at + 2] >> SHIFT] += 1
        tables[3, bits[at + 3] >> SHIFT] += 1
    for at in range(whole, row.size):
        tables[0, bits[at] >> SHIFT] += 1


@njit(nogil=True, cache=True)
def _empty(tables: Any, into: Any, lowest: Any, highest: Any) -> None:
    """Move the counts of ``tables`` to ``into``. lowest, highest: keys; no bucket beyond theirs was counted in.

    Octaves that nothing was counted in are not touched, so that the pages of ``into`` behind them are never made.
    """
    positive = (highest >> _OCTAVE_SHIFT) + 1 if highest >= 0 else 0
    negative = ((lowest ^ np.int32(_FLIP)) & np.int32(_FLIP)) >> _OCTAVE_SHIFT if lowest < 0 else -1
    octaves = tables.reshape(_TABLES, BUCKETS // _OCTAVE, _OCTAVE)
    totals = into.reshape(BUCKETS // _OCTAVE, _OCTAVE)
    half = _SIGN // _OCTAVE
    for start, stop in ((0, positive), (half, half + negative + 1)):
        for octave in range(start, stop):
            one, two, three, four = octaves[0, octave], octaves[1, octave], octaves[2, octave], octaves[3, octave]
            used = np.uint32(0)
            for at in range(_OCTAVE):
                used |= one[at] | two[at] | three[at] | four[at]
            if used:
                total = totals[octave]
                for at in range(_OCTAVE):
                    total[at] += np.int64(one[at]) + two[at] + three[at] + four[at]
                    one[at] = two[at] = three[at] = four[at] = 0


@njit(nogil=True, cache=True)
def _count_planes(values: Any, tables: Any, into: Any, keys: Any, sums: Any) -> Any:
    """Count ``values``, float32 [outer, channels, inner], into the vectors of a tally.

    tables: uint32 [4, BUCKETS], zeros before and after; into: int64 [BUCKETS]; keys: int32 [2, channels], lowest and
    highest; sums: float64 [2, channels], of values and squares. Returns the extremes, as keys, of these values alone.
    """
    outer, channels, _ = values.shape
    lanes, squares = np.zeros(_LANES), np.zeros(_LANES)
    least, most = np.int32(_FLIP), np.int32(~_FLIP)
    for index in range(outer):
        for channel in range(channels):
            row = values[index, channel]
            lowest, highest = _extremes_of(row)
            keys[0, channel], keys[1, channel] = min(keys[0, channel], lowest), max(keys[1, channel], highest)
            least, most = min(least, lowest), max(most, highest)
            total, total_squares = _sums_of(row, lanes, squares)
            sums[0, channel] += total
            sums[1, channel] += total_squares
            _count(row, tables)
    _empty(tables, into, least, most)
    return least, most


@njit(nogil=True, cache=True)
def _count_rows(values: Any, tables: Any, into: Any, keys: Any, sums: Any) -> Any:
    """The same of ``values``, float32 [outer, channels], whose channels lie side by side: channel after channel."""
    outer, channels = values.shape
    least, most = np.int32(_FLIP), np.int32(~_FLIP)
    for index in range(outer):
        row = values[index]
        bits = row.view(np.int32)
        for channel in range(channels):
            key = bits[channel] ^ ((bits[channel] >> np.int32(31)) & np.int32(_FLIP))
            keys[0, channel], keys[1, channel] = min(keys[0, channel], key), max(keys[1, channel], key)
            least, most = min(least, key), max(most, key)
        for channel in range(channels):
            value = np.float64(row[channel])
            sums[0, channel] += value
            sums[1, channel] += value * value
        _count(row, tables)
    _empty(tables, into, least, most)
    return least, most


class Tables:
    """Scratch memory of one thread: zeros between two tensors."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: NDArray[np.uint32] = np.zeros((_TABLES, BUCKETS), np.uint32)


class Tally:
    """Running counts of one tensor over the examples of a pass. axis: its channel axis."""

    __slots__ = ("_axis", "_buckets", "_count", "_extremes", "_keys", "_sums")

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._buckets: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)
        self._count = 0
        self._extremes: list[tuple[int, int]] = []  # keys, of each example
        self._keys: NDArray[np.int32] = np.zeros((2, 0), np.int32)  # of each channel: lowest, highest
        self._sums: NDArray[np.float64] = np.zeros((2, 0), np.float64)  # values, squares

    def add(self, values: NDArray[np.float32], tables: Tables) -> bool:
        """Count one example's values (the same shape each time); False where one of them is NaN or Inf."""
        if values.size == 0:
            self._extremes.append((0, 0))
            return True
        shape = values.shape or (1,)
        channels = shape[self._axis]
        if self._count == 0:
            self._keys = np.empty((2, channels), np.int32)
            self._keys[0], self._keys[1] = _FLIP, ~_FLIP
            self._sums = np.zeros((2, channels), np.float64)
        flat = np.ascontiguousarray(values).reshape(-1)
        inner = int(np.prod(shape[self._axis + 1 :], dtype=np.int64))
        if inner == 1:
            rows = flat.reshape(-1, channels)
            low, high = _count_rows(rows, tables.counts, self._buckets, self._keys, self._sums)
        else:
            planes = flat.reshape(-1, channels, inner)
            low, high = _count_planes(planes, tables.counts, self._buckets, self._keys, self._sums)
        self._count += flat.size
        self._extremes.append((int(low), int(high)))
        return bool(low >= _LOWEST_FINITE and high <= _HIGHEST_FINITE)

    def result(self) -> TensorStatistics:
        """What was counted; zeros where the tensor holds no element."""
        extremes = _floats(np.array(self._extremes, np.int32).reshape(-1, 2).T)
        low, high = _floats(self._keys)
        return TensorStatistics(
            minimum=float(low.min()) if self._count else 0.0,
            maximum=float(high.max()) if self._count else 0.0,
            count=self._count,
            buckets=self._buckets,
            sample_minima=extremes[0],
            sample_maxima=extremes[1],
            channels=ChannelStatistics(
                axis=self._axis, minima=low, maxima=high, sums=self._sums[0], squares=self._sums[1]
            ),
        )


def _floats(keys: NDArray[np.int32]) -> NDArray[np.float32]:
    """The float32 values of keys; a negative zero becomes zero."""
    bits = keys ^ ((keys >> np.int32(31)) & np.int32(_FLIP))
    values: NDArray[np.float32] = np.ascontiguousarray(bits).view(np.float32) + np.float32(0.0)
    return values
