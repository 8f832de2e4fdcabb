"""verify: from a detector's outputs to boxes. numpy in, numpy out; no model, no labels.

Understood: ``boxes`` [1, 4, N] (centre x, centre y, width, height in pixels of the frame) with ``scores`` [1, C, N] in
0..1, or both in one output [1, 4 + C, N], the layout that YOLOv8 exports. Suppression is greedy and class by class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError

Array = NDArray[np.float64]
MAX_CANDIDATES = 30000  # before suppression, over all classes; a guard against a model that answers everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionRule:
    """score: the lowest that counts; overlap: IoU above which the weaker of one class goes; most: kept a picture."""

    score: float = 0.001
    overlap: float = 0.65
    most: int = 300


SHOWN = DetectionRule(score=0.25, overlap=0.65)  # boxes that an application shows, YOLO's own default score


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """corners: [N, 4] x1, y1, x2, y2; scores: [N], descending; classes: [N] indices."""

    corners: Array
    scores: Array
    classes: NDArray[np.int64]


def split_outputs(outputs: Mapping[str, NDArray[Any]]) -> tuple[Array, Array]:
    """(boxes [4, N], scores [C, N]) from a model's real-valued outputs. StageError where no known form fits."""
    if {"boxes", "scores"} <= outputs.keys():
        boxes, scores = outputs["boxes"], outputs["scores"]
        if boxes.ndim == 3 and scores.ndim == 3 and boxes.shape[:2] == (1, 4) and boxes.shape[2] == scores.shape[2]:
            return boxes[0].astype(np.float64), scores[0].astype(np.float64)
    if len(outputs) == 1:
        (joined,) = outputs.values()
        if joined.ndim == 3 and joined.shape[0] == 1 and 4 < joined.shape[1] < joined.shape[2]:
            return joined[0, :4].astype(np.float64), joined[0, 4:].astype(np.float64)
    shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in outputs.items())
    raise StageError(
        Fault(
            what=f"the metric coco_map cannot read these outputs: {shapes}",
            hint="it reads boxes [1, 4, N] with scores [1, C, N], or one output [1, 4 + C, N]",
        )
    )


def detect(boxes: Array, scores: Array, rule: DetectionRule) -> Detections:
    """Detections of one picture. boxes [4, N] centre form, scores [C, N]. Ties go to the lower class, then position."""
    classes, cells = np.nonzero(scores >= rule.score)
    values = scores[classes, cells]
    order = np.argsort(-values, kind="stable")[:MAX_CANDIDATES]
    classes, cells, values = classes[order], cells[order], values[order]
    x, y, width, height = boxes[:, cells]
    corners = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)
    kept = _suppress(corners, classes, rule)
    return Detections(corners=corners[kept], scores=values[kept], classes=classes[kept])


def _suppress(corners: Array, classes: NDArray[np.int64], rule: DetectionRule) -> NDArray[np.int64]:
    """Indices kept, strongest first, at most ``rule.most``; boxes come in descending order of score."""
    area = np.prod(np.clip(corners[:, 2:] - corners[:, :2], 0.0, None), axis=1)
    left = np.arange(len(corners))
    kept: list[int] = []
    while len(left) and len(kept) < rule.most:
        first, left = int(left[0]), left[1:]
        kept.append(first)
        low = np.maximum(corners[first, :2], corners[left, :2])
        high = np.minimum(corners[first, 2:], corners[left, 2:])
        shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
        union = area[first] + area[left] - shared
        left = left[(classes[left] != classes[first]) | (shared <= rule.overlap * union)]
    return np.array(kept, np.int64)
