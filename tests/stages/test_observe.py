"""Stage ``observe``: what it writes is what its domain computed, and a repeated run has the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from npubake.calibration.statistics import Statistics
from npubake.stages import observe
from tests.calibration.sets import PREPARED, build, job, request, summary

ROOT = Path(__file__).resolve().parents[2]


def test_the_classifier_is_observed(tmp_path: Path) -> None:
    path = ROOT / "models" / "digits_mobilenet.onnx"
    graph = summary(onnx.load(path))
    graph.save(tmp_path / "graph.json")
    files = sorted((ROOT / "data" / "digits_cls" / "calibration").glob("*.npy"))[:4]
    build([{"": file} for file in files], graph, request(PREPARED), tmp_path / "samples.npz")
    inputs = {"model": path, "graph": tmp_path / "graph.json", "samples": tmp_path / "samples.npz"}
    observe.run(job(tmp_path, {}, ("statistics",), **inputs))
    first = (tmp_path / "statistics").read_bytes()
    observe.run(job(tmp_path, {}, ("statistics",), **inputs))
    assert (tmp_path / "statistics").read_bytes() == first
    found = Statistics.load(tmp_path / "statistics")
    assert list(found.tensors) == list(graph.quantisable())
    assert found.samples == 4
    assert found.tensors["image"].maximum == max(float(np.load(file).max()) for file in files)
    assert found.tensors["logits"].count == 40
