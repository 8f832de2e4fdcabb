"""verify: what a metric leaves for each picture, to be judged again without the model. Data and JSON only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.int64]


class Evidence(Protocol):
    """The metric's value under any weighting of the pictures."""

    @property
    def names(self) -> tuple[str, ...]:
        """The pictures, in order."""

    def values(self, weights: Weights) -> NDArray[np.float64]:
        """The metric, [R], where picture i counts ``weights[r, i]`` times, int64 [R, I]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Right or wrong for each picture: the evidence of an accuracy."""

    names: tuple[str, ...]
    right: tuple[bool, ...]

    def values(self, weights: Weights) -> NDArray[np.float64]:
        """Share of right pictures."""
        share: NDArray[np.float64] = (weights @ np.array(self.right, np.int64)) / weights.sum(axis=1)
        return share

    def to_json(self) -> dict[str, Any]:
        return {"kind": "hits", "names": list(self.names), "right": [int(value) for value in self.right]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Detections of one IoU threshold after COCO's matching, and the objects there are: the evidence of an mAP.

    image, category, score, matched: one entry a detection (indices into names and categories), ignored ones left out;
    objects: (image, category, count) of the objects that count.
    """

    names: tuple[str, ...]
    categories: tuple[str, ...]
    image: tuple[int, ...]
    category: tuple[int, ...]
    score: tuple[float, ...]
    matched: tuple[bool, ...]
    objects: tuple[tuple[int, int, int], ...]

    def values(self, weights: Weights) -> NDArray[np.float64]:
        """Mean over the categories that have objects of the average precision at 101 recalls, as COCO defines it.

        A picture drawn twice has each detection twice, next to each other (COCO leaves the order of equal scores open),
        so counts are weighted sums. Precision is needed at matched detections alone: between them it only falls, and
        its envelope from the right does not see that.
        """
        image, category = np.array(self.image, np.int64), np.array(self.category, np.int64)
        score, matched = np.array(self.score, np.float64), np.array(self.matched, bool)
        counts = np.zeros((len(self.categories), len(self.names)), np.int64)
        for where, which, count in self.objects:
            counts[which, where] = count
        total, present = np.zeros(len(weights)), np.zeros(len(weights), np.int64)
        for which in range(len(self.categories)):
            mine = np.flatnonzero(category == which)
            mine = mine[np.argsort(-score[mine], kind="stable")]
            positives = weights @ counts[which]
            total += _average_precision(weights, image[mine], matched[mine], positives)
            present += positives > 0
        mean: NDArray[np.float64] = total / np.maximum(present, 1)
        return mean

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "matches",
            "names": list(self.names),
            "categories": list(self.categories),
            "image": list(self.image),
            "category": list(self.category),
            "score": list(self.score),
            "matched": [int(value) for value in self.matched],
            "objects": [list(entry) for entry in self.objects],
        }


def _average_precision(
    weights: Weights, image: NDArray[np.int64], matched: NDArray[np.bool_], positives: NDArray[np.int64]
) -> NDArray[np.float64]:
    """[R] average precision of one category; 0 where it has no object. Detections come in descending order of score."""
    hits = np.flatnonzero(matched)
    if not len(hits):
        return np.zeros(len(weights))
    upto = np.searchsorted(hits, np.arange(len(image)))  # the first matched detection that does not come before it
    known = upto < len(hits)  # what lies behind the last matched one reaches no further recall
    spread = np.zeros((weights.shape[1], len(hits)))
    np.add.at(spread, (image[known], upto[known]), 1.0)
    seen = np.cumsum(weights @ spread, axis=1)
    true = np.cumsum(weights[:, image[hits]], axis=1).astype(np.float64)
    precision = true / (seen + np.spacing(1))
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = true / np.maximum(positives, 1)[:, None]
    grid = np.linspace(0.0, 1.0, 101)
    padded = np.concatenate([envelope, np.zeros((len(weights), 1))], axis=1)
    result = np.empty(len(weights))
    for row in range(len(weights)):
        result[row] = padded[row, np.searchsorted(recall[row], grid, side="left")].mean()
    result[positives == 0] = 0.0
    return result


def evidence_from_json(data: Mapping[str, Any]) -> Hits | Matches:
    """Inverse of ``to_json`` of both kinds."""
    if data["kind"] == "hits":
        return Hits(names=tuple(data["names"]), right=tuple(bool(value) for value in data["right"]))
    return Matches(
        names=tuple(data["names"]),
        categories=tuple(data["categories"]),
        image=tuple(data["image"]),
        category=tuple(data["category"]),
        score=tuple(data["score"]),
        matched=tuple(bool(value) for value in data["matched"]),
        objects=tuple((entry[0], entry[1], entry[2]) for entry in data["objects"]),
    )
