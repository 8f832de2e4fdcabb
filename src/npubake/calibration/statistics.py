"""calibration: counts of every quantisable tensor, over the bits of the float itself. numpy in, numpy out; no onnx.

A *bucket* is the upper 14 bits of a float32: sign, exponent and 5 mantissa bits, so that no range need be known
beforehand, a bucket is at most 1/32 of its value wide, and counts of two passes merge exactly, in any order.
Bucket ``b`` holds the floats whose bit pattern shifted right by 18 is ``b``: 0..8159 are the positive ones in
ascending order, 8192..16351 the negative ones in descending order; the rest would be Inf and NaN and stays empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.archive import ArchiveReader, ArchiveWriter
from npubake.errors import Fault, StageError

VERSION = 2
_CHANNEL_COLUMNS = ("channel_minima", "channel_maxima", "channel_sums", "channel_squares")
_COLUMNS = ("index", "counts", "sample_minima", "sample_maxima", *_CHANNEL_COLUMNS)
SHIFT = 18
BUCKETS = 1 << 14
_SIGN = BUCKETS >> 1
_FINITE = 255 << 5  # magnitudes whose exponent is below 255


@cache
def bucket_edges() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of each bucket, float64 [16384] each; NaN for the buckets of Inf and NaN."""
    magnitude = np.arange(_FINITE, dtype=np.uint32)
    near = (magnitude << np.uint32(SHIFT)).view(np.float32).astype(np.float64)
    far = (((magnitude + np.uint32(1)) << np.uint32(SHIFT)) - np.uint32(1)).view(np.float32).astype(np.float64)
    low, high = np.full(BUCKETS, np.nan), np.full(BUCKETS, np.nan)
    low[:_FINITE], high[:_FINITE] = near, far
    low[_SIGN : _SIGN + _FINITE], high[_SIGN : _SIGN + _FINITE] = -far, -near
    low.flags.writeable = high.flags.writeable = False
    return low, high


@cache
def ascending_buckets() -> NDArray[np.int64]:
    """Indices of the finite buckets in ascending order of value, int64 [16320]."""
    order = np.concatenate([np.arange(_SIGN + _FINITE - 1, _SIGN - 1, -1), np.arange(_FINITE)]).astype(np.int64)
    order.flags.writeable = False
    return order


def _no_floats() -> NDArray[np.float32]:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelStatistics:
    """One tensor channel by channel over all samples. axis: that of ``calibration.channels``; minima, maxima: float32
    [channels], exact; sums, squares: float64 [channels], of the values and of their squares, exact to float64 rounding.
    """

    axis: int
    minima: NDArray[np.float32]
    maxima: NDArray[np.float32]
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]

    def merged(self, other: ChannelStatistics) -> ChannelStatistics:
        return ChannelStatistics(
            axis=self.axis,
            minima=np.minimum(self.minima, other.minima),
            maxima=np.maximum(self.maxima, other.maxima),
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorStatistics:
    """One tensor over all samples. minimum, maximum: exact float32 values (a negative zero counts as zero);
    count: elements seen; buckets: int64 [16384], indexed by ``bits >> 18``; sample_minima, sample_maxima: float32
    [samples], the extremes of each sample in the order of the set; channels: None only where nobody counted them.
    """

    minimum: float
    maximum: float
    count: int
    buckets: NDArray[np.int64]
    sample_minima: NDArray[np.float32] = field(default_factory=_no_floats)
    sample_maxima: NDArray[np.float32] = field(default_factory=_no_floats)
    channels: ChannelStatistics | None = None

    @property
    def absmax(self) -> float:
        """The largest magnitude seen."""
        return max(-self.minimum, self.maximum)

    def merged(self, other: TensorStatistics) -> TensorStatistics:
        mine, theirs = self.channels, other.channels
        return TensorStatistics(
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            count=self.count + other.count,
            buckets=self.buckets + other.buckets,
            sample_minima=np.concatenate([self.sample_minima, other.sample_minima]),
            sample_maxima=np.concatenate([self.sample_maxima, other.sample_maxima]),
            channels=mine.merged(theirs) if mine is not None and theirs is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The artifact of ``observe``. samples: examples seen; tensors: in the order of ``GraphSummary.quantisable()``."""

    samples: int
    tensors: Mapping[str, TensorStatistics]

    def save(self, path: Path) -> None:
        """A deterministic npz: what all tensors have of a kind, one after the other, and ``statistics.json``."""
        used = {name: np.flatnonzero(entry.buckets) for name, entry in self.tensors.items()}
        entries = [
            {
                "name": name,
                "minimum": entry.minimum,
                "maximum": entry.maximum,
                "count": entry.count,
                "buckets": len(used[name]),
                "samples": len(entry.sample_minima),
                "channels": None if entry.channels is None else len(entry.channels.sums),
                "axis": None if entry.channels is None else entry.channels.axis,
            }
            for name, entry in self.tensors.items()
        ]
        every = self.tensors.values()
        counts = [entry.buckets[used[name]] for name, entry in self.tensors.items()]
        fitting = max((int(part.max(initial=0)) for part in counts), default=0) < 1 << 32
        channels = [entry.channels for entry in every if entry.channels is not None]
        columns = {
            "index": (np.uint16, used.values()),
            "counts": (np.uint32 if fitting else np.int64, counts),
            "sample_minima": (np.float32, [entry.sample_minima for entry in every]),
            "sample_maxima": (np.float32, [entry.sample_maxima for entry in every]),
            "channel_minima": (np.float32, [entry.minima for entry in channels]),
            "channel_maxima": (np.float32, [entry.maxima for entry in channels]),
            "channel_sums": (np.float64, [entry.sums for entry in channels]),
            "channel_squares": (np.float64, [entry.squares for entry in channels]),
        }
        with ArchiveWriter(path) as archive:
            archive.json("statistics.json", {"version": VERSION, "samples": self.samples, "tensors": entries})
            for name, (dtype, parts) in columns.items():
                archive.array(f"{name}.npy", np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype))

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Read what ``save`` wrote; StageError where the file is something else, or of another version."""
        with ArchiveReader(path) as archive:
            head = archive.json("statistics.json")
            if head["version"] != VERSION:
                what = f"statistics of version {head['version']}, where {VERSION} is read"
                raise StageError(Fault(what=what, where=path.name, hint="build again: another npubake observed these"))
            columns = {name: _Column(archive.array(f"{name}.npy")) for name in _COLUMNS}
        return cls(samples=head["samples"], tensors={entry["name"]: _read(entry, columns) for entry in head["tensors"]})


class _Column:
    """What all tensors have of one kind, handed out in their order."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values
        self._start = 0

    def take(self, count: int) -> NDArray[Any]:
        start, self._start = self._start, self._start + count
        return self._values[start : self._start]


def _read(entry: Mapping[str, Any], columns: Mapping[str, _Column]) -> TensorStatistics:
    """One tensor of a saved file: ``entry`` of its head, the rest taken from ``columns``."""
    buckets = np.zeros(BUCKETS, np.int64)
    buckets[columns["index"].take(entry["buckets"])] = columns["counts"].take(entry["buckets"])
    channels = None
    if entry["channels"] is not None:
        minima, maxima, sums, squares = (columns[name].take(entry["channels"]) for name in _CHANNEL_COLUMNS)
        channels = ChannelStatistics(axis=entry["axis"], minima=minima, maxima=maxima, sums=sums, squares=squares)
    return TensorStatistics(
        minimum=entry["minimum"],
        maximum=entry["maximum"],
        count=entry["count"],
        buckets=buckets,
        sample_minima=columns["sample_minima"].take(entry["samples"]),
        sample_maxima=columns["sample_maxima"].take(entry["samples"]),
        channels=channels,
    )


def merge(left: Statistics, right: Statistics) -> Statistics:
    """Statistics of both passes, ``left``'s samples first. Counts and extremes are exact in any order of merging; sums
    are exact to float64 rounding. StageError where the tensors differ.
    """
    if list(left.tensors) != list(right.tensors):
        odd = sorted(set(left.tensors) ^ set(right.tensors)) or ["the order of tensors"]
        raise StageError(
            Fault(
                what=f"statistics of two different graphs cannot be merged: {', '.join(odd[:5])} differ",
                hint="observe both with the same optimised model",
            )
        )
    return Statistics(
        samples=left.samples + right.samples,
        tensors={name: entry.merged(right.tensors[name]) for name, entry in left.tensors.items()},
    )
