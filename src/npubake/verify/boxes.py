"""verify: whether two detectors find the same boxes. Detections in, counts out; no model, no labels.

Two boxes match when they are of one class and their IoU is at least ``IOU``; each box has at most one partner: the
strongest chooses first, the free box that it overlaps most. Only boxes that an application would show count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.verify.detection import SHOWN, Array, Detections, detect, split_outputs

IOU = 0.9  # by which "the same box" is meant (COCO's second strictest step)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxAgreement:
    """matched: pairs; only_left, only_right: boxes without a partner."""

    matched: int = 0
    only_left: int = 0
    only_right: int = 0

    def __add__(self, other: BoxAgreement) -> BoxAgreement:
        return BoxAgreement(
            matched=self.matched + other.matched,
            only_left=self.only_left + other.only_left,
            only_right=self.only_right + other.only_right,
        )

    @property
    def fraction(self) -> float:
        """Share of all boxes of both that have a partner; 1 where neither has any."""
        every = 2 * self.matched + self.only_left + self.only_right
        return 2 * self.matched / every if every else 1.0


def compare_boxes(left: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]]) -> BoxAgreement:
    """Of two models' real-valued outputs for one picture. Raises StageError where they are no detector's."""
    return match(*(detect(*split_outputs(outputs), SHOWN) for outputs in (left, right)))


def match(left: Detections, right: Detections) -> BoxAgreement:
    """Pairs of two sets of boxes, each sorted by descending score."""
    free = np.ones(len(right.scores), dtype=bool)
    matched = 0
    for corners, label in zip(left.corners, left.classes, strict=True):
        overlap = np.where(free & (right.classes == label), _overlaps(corners, right.corners), 0.0)
        if overlap.size and overlap.max() >= IOU:
            free[int(overlap.argmax())] = False
            matched += 1
    return BoxAgreement(matched=matched, only_left=len(left.scores) - matched, only_right=int(free.sum()))


def _overlaps(box: Array, others: Array) -> Array:
    """IoU of one box [4] with each of others [N, 4], corners x1, y1, x2, y2; 0 where both are empty."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
    areas = np.prod(np.clip(np.vstack([box, others])[:, 2:] - np.vstack([box, others])[:, :2], 0.0, None), axis=1)
    union = areas[0] + areas[1:] - shared
    overlaps: Array = np.divide(shared, union, out=np.zeros(len(others)), where=union > 0)
    return overlaps
