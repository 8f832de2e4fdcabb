"""Toolchains room: outputs as people read them, for ``npubake run``. Arrays in, plain data and drawn pixels out.

A classifier's output [1, N] gives its strongest classes; outputs that ``verify/detection.py`` can read, as the metric
``coco_map`` does, give detections in pixels of the picture that was fed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from npubake.errors import StageError
from npubake.toolchains.feeding import Picture
from npubake.verify.detection import SHOWN, detect, split_outputs

TOP = 5
MOST_CLASSES = 1000  # wider outputs [1, N] are taken for something else than classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """label: index of the class; box: x1, y1, x2, y2 in pixels of the source picture, or of the frame where none is."""

    label: int
    score: float
    box: tuple[float, float, float, float]


def strongest(value: NDArray[Any]) -> list[tuple[int, float]]:
    """(index, value) of the largest entries of a classifier's output, the first of equal ones first; else nothing."""
    if value.ndim != 2 or value.shape[0] != 1 or not 2 <= value.shape[1] <= MOST_CLASSES:
        return []
    if not np.isfinite(value.astype(np.float64)).all():
        return []
    order = np.argsort(-value[0].astype(np.float64), kind="stable")[:TOP]
    return [(int(index), value[0, index].item()) for index in order]


def detections(outputs: Mapping[str, NDArray[Any]], picture: Picture | None) -> list[Detected] | None:
    """Detections of a score of 0.25 and more, strongest first; None where the outputs are no detector's: of another
    form, or with scores that are no shares of 1.
    """
    try:
        boxes, scores = split_outputs(outputs)
    except StageError:
        return None
    if not ((scores >= 0.0) & (scores <= 1.0)).all():
        return None
    found = detect(boxes, scores, SHOWN)
    corners = found.corners if picture is None else picture.geometry.to_source(found.corners)
    return [
        Detected(label=int(label), score=float(score), box=(float(x1), float(y1), float(x2), float(y2)))
        for label, score, (x1, y1, x2, y2) in zip(found.classes, found.scores, corners, strict=True)
    ]


def draw(picture: Picture, found: Sequence[Detected], path: Path) -> None:
    """Write the picture with each box and its class and score. Raises OSError, ValueError for an unknown suffix."""
    pixels = picture.pixels
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    pen = ImageDraw.Draw(image)
    thick = max(1, round(max(image.size) / 320))
    for entry in found:
        x, y = min(entry.box[::2]), min(entry.box[1::2])
        pen.rectangle((x, y, max(entry.box[::2]), max(entry.box[1::2])), outline=(255, 40, 40), width=thick)
        text = f"{entry.label} {entry.score:.2f}"
        y = max(0.0, y - pen.textbbox((0, 0), text)[3] - thick)  # above the box, where there is room
        left, top, right, bottom = pen.textbbox((x, y), text)
        pen.rectangle((left, top, right + 1, bottom + 1), fill=(255, 40, 40))
        pen.text((x, y), text, fill=(255, 255, 255))
    image.save(path)
