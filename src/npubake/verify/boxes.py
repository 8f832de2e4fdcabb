"""verify: whether two detectors find the same boxes. Detections in, counts out; no model, no labels.

Two boxes match when they are of one class and their IoU is at least ``IOU``, or, where the boxes leave as integers,
when centre, width and height differ by at most one step of that output: nearer than its neighbour no code can be, and
of 8 bits over 640 pixels a step is 2.5 pixels, which costs a box of 30 pixels an IoU of 0.9. These are counted apart.
Each box has at most one partner: the strongest chooses first, the free box that it overlaps most. Only boxes that an
application would show count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.verify.detection import SHOWN, Array, Detections, detect, split_outputs

_ROUNDING = 1 + 1e-6  # of float32 coordinates
IOU = 0.9  # by which "the same box" is meant (COCO's second strictest step)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxAgreement:
    """matched: pairs by IoU; near: pairs by the step; only_left, only_right: boxes without a partner."""

    matched: int = 0
    near: int = 0
    only_left: int = 0
    only_right: int = 0

    def __add__(self, other: BoxAgreement) -> BoxAgreement:
        return BoxAgreement(
            matched=self.matched + other.matched,
            near=self.near + other.near,
            only_left=self.only_left + other.only_left,
            only_right=self.only_right + other.only_right,
        )

    @property
    def fraction(self) -> float:
        """Share of all boxes of both that have a partner; 1 where neither has any."""
        paired = 2 * (self.matched + self.near)
        every = paired + self.only_left + self.only_right
        return paired / every if every else 1.0


def compare_boxes(
    left: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]], step: float = 0.0
) -> BoxAgreement:
    """Of two models' real-valued outputs for one picture. step: of the output of boxes, in pixels; 0 where it is real.

    Raises StageError where the outputs are no detector's.
    """
    found = [detect(*split_outputs(outputs), SHOWN) for outputs in (left, right)]
    return match(found[0], found[1], step)


def match(left: Detections, right: Detections, step: float = 0.0) -> BoxAgreement:
    """Pairs of two sets of boxes, each sorted by descending score. step: as in ``compare_boxes``."""
    free = np.ones(len(right.scores), dtype=bool)
    matched = near = 0
    for corners, label in zip(left.corners, left.classes, strict=True):
        overlap = _overlaps(corners, right.corners)
        able = free & (right.classes == label) & ((overlap >= IOU) | _within(corners, right.corners, step))
        if able.any():
            best = int(np.where(able, overlap, -1.0).argmax())
            free[best] = False
            matched, near = matched + int(overlap[best] >= IOU), near + int(overlap[best] < IOU)
    alone = len(left.scores) - matched - near
    return BoxAgreement(matched=matched, near=near, only_left=alone, only_right=int(free.sum()))


def _within(box: Array, others: Array, step: float) -> NDArray[np.bool_]:
    """Whether centre, width and height of a box [4] are within a step of those of others [N, 4], all corners."""
    centred = [np.hstack([(some[:, :2] + some[:, 2:]) / 2, some[:, 2:] - some[:, :2]]) for some in (box[None], others)]
    if step == 0.0:
        return np.zeros(len(others), dtype=bool)
    near: NDArray[np.bool_] = np.all(np.abs(centred[1] - centred[0]) <= step * _ROUNDING, axis=1)
    return near


def _overlaps(box: Array, others: Array) -> Array:
    """IoU of one box [4] with each of others [N, 4], corners x1, y1, x2, y2; 0 where both are empty."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
    areas = np.prod(np.clip(np.vstack([box, others])[:, 2:] - np.vstack([box, others])[:, :2], 0.0, None), axis=1)
    union = areas[0] + areas[1:] - shared
    overlaps: Array = np.divide(shared, union, out=np.zeros(len(others)), where=union > 0)
    return overlaps
