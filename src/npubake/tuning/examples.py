"""tuning: chosen examples of a sample set, read when they are asked for, so that memory does not grow with the set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet

Feeds = Mapping[str, NDArray[Any]]


class Examples(Sequence[Feeds]):
    """``samples`` at ``indices``: each a mapping of input name to array."""

    def __init__(self, samples: SampleSet, indices: Sequence[int]) -> None:
        self._samples, self._indices = samples, tuple(indices)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, place: int) -> Feeds: ...
    @overload
    def __getitem__(self, place: slice) -> Examples: ...
    def __getitem__(self, place: int | slice) -> Feeds | Examples:
        if isinstance(place, slice):
            return Examples(self._samples, self._indices[place])
        return self._samples.read(self._indices[place])
