"""A small project on disk, driven through the command line as a person would: real classifier, real digits as PNG."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = """\
version: 1
model:
  path: ../models/digits_mobilenet.onnx
preprocess:
  channels: gray
  resize: {kind: resize_exact, size: [28, 28]}
  scale: {divide_by: 255}
runtime_input:
  image: {type: gray}
calibration:
  data: ../data/calibration
  samples: 16
quant_config:
  calibration: {method: percentile, percentile: 0.9999, asymmetric: true}
layer_overrides:
  - match: {op_types: [GlobalAveragePool]}
    set: {activation: int16}
gates:
  quantized: {cosine: 0.98, sqnr_db: 15}
metric:
  name: top1
  data: ../data/validation
  max_drop: 0.1
platform: generic
"""
UNTUNED = "  tuning: {level: none}\n"


def write_digits(folder: Path, start: int, count: int) -> None:
    """``count`` real digits as PNG files of 28 x 28 grey pixels, and labels.json: file name -> class."""
    held = np.load(REPOSITORY / "data" / "digits_cls" / "validation.npz")
    folder.mkdir(parents=True)
    labels = {}
    for index in range(start, start + count):
        pixels = np.rint(held["images"][index, 0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index:04d}.png")
        labels[f"{index:04d}.png"] = int(held["labels"][index])
    (folder / "labels.json").write_text(json.dumps(labels))


@dataclass
class Result:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out)

    def ran(self) -> list[str]:
        """Stages that really ran, sorted."""
        return sorted(task["stage"] for task in self.json["tasks"] if task["outcome"] == "ran")

    def outcomes(self) -> dict[str, list[str]]:
        """Outcome -> stages, sorted."""
        found: dict[str, list[str]] = {}
        for task in self.json["tasks"]:
            found.setdefault(task["outcome"], []).append(task["stage"])
        return {outcome: sorted(stages) for outcome, stages in found.items()}


@dataclass
class Workspace:
    """A project folder. ``environment`` is added to each command's."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def create(cls, root: Path) -> Workspace:
        """A new project with one recipe ``small`` and the data that it names."""
        (root / "recipes").mkdir(parents=True)
        (root / "models").mkdir()
        shutil.copy(REPOSITORY / "models" / "digits_mobilenet.onnx", root / "models")
        shutil.copytree(REPOSITORY / "platforms", root / "platforms")
        write_digits(root / "data" / "calibration", 0, 24)
        (root / "data" / "calibration" / "labels.json").unlink()
        write_digits(root / "data" / "validation", 100, 40)
        (root / "recipes" / "small.yaml").write_text(RECIPE)
        shutil.copy(REPOSITORY / "pyproject.toml", root / "pyproject.toml")
        return cls(root)

    @classmethod
    def untuned(cls, root: Path) -> Workspace:
        """The same with a recipe that asks for no tuning: half the work, where tuning is not the subject."""
        workspace = cls.create(root)
        workspace.edit("quant_config:\n", "quant_config:\n" + UNTUNED)
        return workspace

    def copy(self, root: Path) -> Workspace:
        """The same project elsewhere, store and build included."""
        shutil.copytree(self.root, root, symlinks=True)
        return Workspace(root, dict(self.environment))

    @property
    def recipe(self) -> Path:
        return self.root / "recipes" / "small.yaml"

    def edit(self, old: str, new: str, file: Path | None = None) -> None:
        """Replaces the one occurrence of ``old`` in the recipe (or ``file``)."""
        path = file or self.recipe
        text = path.read_text()
        assert text.count(old) == 1, (old, text.count(old))
        path.write_text(text.replace(old, new))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "npubake", *words]

    def env(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "COLUMNS": "120", **self.environment, **extra}

    def run(self, *words: str, cwd: Path | None = None, **extra: str) -> Result:
        """One command to its end."""
        done = subprocess.run(
            self.command(*words),
            cwd=cwd or self.root,
            env=self.env(**extra),
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def build(self, *words: str, **extra: str) -> Result:
        """``npubake build ... --json``, expected to succeed."""
        result = self.run("build", *(words or ("small",)), "--json", cwd=None, **extra)
        assert result.code == 0, result.err
        return result

    def bundle(self, target: str = "small") -> bytes:
        """The bytes of a target's bundle."""
        (path,) = (self.root / "build" / target).glob("*.bundle")
        return path.read_bytes()
