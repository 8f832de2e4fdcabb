"""tuning: chosen examples of a sample set, read when they are asked for, so that memory does not grow with the set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet

Feeds = Mapping[str, NDArray[Any]]


class Examples(Mapping[int, Feeds]):
    """``samples`` at ``indices``, by index and in their order: each a mapping of input name to array."""

    def __init__(self, samples: SampleSet, indices: Sequence[int]) -> None:
        self._samples, self._indices = samples, tuple(indices)

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __getitem__(self, index: int) -> Feeds:
        if index not in self._indices:
            raise KeyError(index)
        return self._samples.read(index)
