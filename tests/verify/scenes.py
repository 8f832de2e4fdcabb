"""Seeded pictures with objects and imperfect detections, for the tests of the product metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npubake.verify.coco import CocoLabels
from npubake.verify.detection import Detections

CATEGORIES = ((7, "seven"), (3, "three"), (12, "twelve"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    labels: CocoLabels
    names: tuple[str, ...]
    found: tuple[Detections, ...]


def scene(seed: int, pictures: int = 30, noise: float = 2.0, crowd: bool = False, digits: int = 1) -> Scene:
    """About three objects a picture; a tenth missed, some found twice, some false; rounded scores are often equal."""
    generator = np.random.default_rng(seed)
    annotations, found = [], []
    for index in range(pictures):
        corners, scores, classes = [], [], []
        for _ in range(int(generator.integers(0, 6))):
            x, y, w, h = generator.uniform([0, 0, 20, 20], [200, 200, 60, 60])
            which = int(generator.integers(0, 3))
            is_crowd = int(crowd and generator.random() < 0.2)
            annotations.append(
                {
                    "image_id": 100 - index,
                    "category_id": CATEGORIES[which][0],
                    "bbox": [x, y, w, h],
                    "iscrowd": is_crowd,
                }
            )
            for _ in range(int(generator.choice([0, 1, 1, 1, 1, 1, 1, 1, 2, 3]))):
                corners.append(np.array([x, y, x + w, y + h]) + generator.normal(0, noise, 4))
                scores.append(round(float(generator.random()), digits))
                classes.append(which if generator.random() < 0.9 else int(generator.integers(0, 3)))
        for _ in range(int(generator.integers(0, 3))):
            x, y = generator.uniform(0, 200, 2)
            corners.append(np.array([x, y, x + 30, y + 30]))
            scores.append(round(float(generator.random()) / 2, digits))
            classes.append(int(generator.integers(0, 3)))
        order = np.argsort(-np.array(scores), kind="stable") if scores else np.zeros(0, int)
        found.append(
            Detections(
                corners=np.array(corners).reshape(-1, 4)[order],
                scores=np.array(scores)[order],
                classes=np.array(classes, np.int64)[order],
            )
        )
    labels = CocoLabels(
        categories=CATEGORIES,
        images={f"{index:03d}.jpg": 100 - index for index in range(pictures)},
        annotations=tuple(annotations),
    )
    return Scene(labels=labels, names=tuple(labels.images), found=tuple(found))
