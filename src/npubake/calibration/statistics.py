"""calibration: counts of every quantisable tensor, over the bits of the float itself. numpy in, numpy out; no onnx.

A *bucket* is the upper 14 bits of a float32: sign, exponent and 5 mantissa bits, so that no range need be known
beforehand, a bucket is at most 1/32 of its value wide, and counts of two passes merge exactly, in any order.
Bucket ``b`` holds the floats whose bit pattern shifted right by 18 is ``b``: 0..8159 are the positive ones in
ascending order, 8192..16351 the negative ones in descending order; the rest would be Inf and NaN and stays empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.archive import ArchiveReader, ArchiveWriter
from npubake.errors import Fault, StageError

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


def infinite_buckets(buckets: NDArray[np.int64]) -> bool:
    """Whether any NaN or Inf was counted (the buckets of exponent 255)."""
    return bool(buckets[_FINITE:_SIGN].any() or buckets[_SIGN + _FINITE :].any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorStatistics:
    """One tensor over all samples. minimum, maximum: exact float32 values (a negative zero counts as zero);
    count: elements seen; buckets: int64 [16384], indexed by ``bits >> 18``.
    """

    minimum: float
    maximum: float
    count: int
    buckets: NDArray[np.int64]

    def merged(self, other: TensorStatistics) -> TensorStatistics:
        return TensorStatistics(
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            count=self.count + other.count,
            buckets=self.buckets + other.buckets,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The artifact of ``observe``. samples: examples seen; tensors: in the order of ``GraphSummary.quantisable()``."""

    samples: int
    tensors: Mapping[str, TensorStatistics]

    def save(self, path: Path) -> None:
        """A deterministic npz: the used buckets of all tensors one after the other, and ``statistics.json``."""
        used = {name: np.flatnonzero(entry.buckets) for name, entry in self.tensors.items()}
        entries = [
            {
                "name": name,
                "minimum": entry.minimum,
                "maximum": entry.maximum,
                "count": entry.count,
                "buckets": len(used[name]),
            }
            for name, entry in self.tensors.items()
        ]
        none = np.zeros(0, np.int64)
        with ArchiveWriter(path) as archive:
            archive.json("statistics.json", {"version": 1, "samples": self.samples, "tensors": entries})
            archive.array("index.npy", np.concatenate([none, *used.values()]).astype(np.uint16))
            counts = [entry.buckets[used[name]] for name, entry in self.tensors.items()]
            archive.array("counts.npy", np.concatenate([none, *counts]))

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Read what ``save`` wrote; StageError where the file is something else."""
        with ArchiveReader(path) as archive:
            head = archive.json("statistics.json")
            index, counts = archive.array("index.npy"), archive.array("counts.npy")
        tensors, start = {}, 0
        for entry in head["tensors"]:
            buckets = np.zeros(BUCKETS, np.int64)
            stop = start + entry["buckets"]
            buckets[index[start:stop]] = counts[start:stop]
            start = stop
            tensors[entry["name"]] = TensorStatistics(
                minimum=entry["minimum"], maximum=entry["maximum"], count=entry["count"], buckets=buckets
            )
        return cls(samples=head["samples"], tensors=tensors)


def merge(left: Statistics, right: Statistics) -> Statistics:
    """Statistics of both passes together; associative and commutative, exactly. StageError where the tensors differ."""
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
