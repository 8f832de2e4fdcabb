"""tuning: which calibration examples judge. Examples that look alike stay on one side. Arrays in, indices out.

Crops of one photograph, or frames of one film, in both parts would flatter whatever learns from examples: rounding that
gains 2 dB on other crops of photographs that it saw may lose 1 dB on new ones. The set does not say which examples
belong together, but their values do: two crops of one photograph have nearly the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet

LEAST_SAMPLES = 4  # fewer leave nothing to judge on
_LEAST_JUDGED, _MOST_JUDGED = 2, 16
_VALUES = 1024  # of one example, evenly spaced
_QUANTILES = np.linspace(0.05, 0.95, 7)
_ALIKE = 0.05  # of the median squared distance: crops of one photograph lie at 0.01, of two at 0.3 and more (measured)
_MOST_CHANNELS = 4  # a longer axis holds no colours


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Indices of the examples that steps may learn from, and of those that judge; both ascending, disjoint."""

    learn: tuple[int, ...]
    judged: tuple[int, ...]


def split_samples(samples: SampleSet, held_out: float) -> Split:
    """Hold ``held_out`` of the examples back; see ``split``."""
    if samples.count < LEAST_SAMPLES:
        return Split(learn=tuple(range(samples.count)), judged=())
    return split([signature(samples.read_stored(index)) for index in range(samples.count)], held_out)


def split(signatures: Sequence[NDArray[np.float64]], held_out: float) -> Split:
    """Hold ``held_out`` of the examples back (2 to 16, at most half), whole families of similar ones, spread evenly."""
    count = len(signatures)
    wanted = min(max(round(count * held_out), _LEAST_JUDGED), _MOST_JUDGED, count // 2)
    families = _families(np.stack(signatures), max(wanted // 2, 1))
    judged: list[int] = []
    order = _spread(len(families), count / wanted)
    for place in order:
        if len(judged) + len(families[place]) <= wanted:
            judged += families[place]
        if len(judged) == wanted:
            break
    return Split(learn=tuple(index for index in range(count) if index not in judged), judged=tuple(sorted(judged)))


def signature(stored: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Quantiles of each input's values, by channel where an axis of 2 to 4 looks like colours; float64 [features]."""
    found = []
    for name in sorted(stored):
        values = np.asarray(stored[name])
        axes = [axis for axis, size in enumerate(values.shape) if 1 < size <= _MOST_CHANNELS]
        rows = np.moveaxis(values, axes[0], 0).reshape(values.shape[axes[0]], -1) if axes else values.reshape(1, -1)
        thinned = rows[:, :: max(rows.shape[1] // _VALUES, 1)].astype(np.float64)
        found.append(
            np.quantile(thinned, _QUANTILES, axis=1).reshape(-1) if thinned.size else np.zeros(len(_QUANTILES))
        )
    return np.concatenate(found)


def _families(signatures: NDArray[np.float64], most: int) -> list[list[int]]:
    """Examples joined, the nearest first, while they are alike and no family passes ``most``; by their first member."""
    spread = signatures.std(axis=0)
    scaled = signatures / np.where(spread > 0, spread, 1.0)
    distances = np.square(scaled[:, None] - scaled[None]).sum(axis=2)
    first, second = np.triu_indices(len(scaled), 1)
    between = distances[first, second]
    limit = _ALIKE * float(np.median(between)) if between.size else 0.0
    family = list(range(len(scaled)))
    for pair in np.argsort(between, kind="stable"):
        if between[pair] >= limit:
            break
        left, right = family[first[pair]], family[second[pair]]
        if left != right and family.count(left) + family.count(right) <= most:
            family = [min(left, right) if entry in (left, right) else entry for entry in family]
    return [[index for index, entry in enumerate(family) if entry == name] for name in sorted(set(family))]


def _spread(count: int, step: float) -> list[int]:
    """All of ``range(count)``: first those ``step`` apart, then the others from the last one on."""
    chosen = list(dict.fromkeys(min(int((place + 0.5) * step), count - 1) for place in range(int(count / step) + 1)))
    return [*chosen, *(place for place in reversed(range(count)) if place not in chosen)]
