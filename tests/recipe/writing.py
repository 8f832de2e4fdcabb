"""Small recipes for the tests of this room."""

from __future__ import annotations

from pathlib import Path

SMALL = """\
version: 1
model: {path: ../m.onnx}
preset: classification
calibration: {data: ../data}
platforms: [generic]
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "recipes" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
