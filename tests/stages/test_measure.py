"""Stage ``measure``: figures of real boundaries, and that it knows no threshold."""

from __future__ import annotations

import json
from pathlib import Path

from npubake.stages import measure
from tests.calibration.sets import job
from tests.stages.planted import MODEL, coarse_output, faulty, validation_set


def test_the_same_model_is_exact_everywhere(tmp_path: Path) -> None:
    inputs = {"reference": MODEL, "candidate": MODEL, "samples": validation_set(tmp_path, 6)}
    measure.run(job(tmp_path, {"boundary": "optimized", "limit": 4}, ("figures",), **inputs))
    found = json.loads((tmp_path / "figures").read_text())
    assert (found["boundary"], found["examples"], found["unmatched"]) == ("optimized", 4, 0)
    assert found["outputs"]["logits"]["cosine"] == 1.0
    assert len(found["tensors"]) > 50
    assert all(entry["max_abs"] == 0.0 for entry in found["tensors"])


def test_a_fault_at_the_output_shows_there_and_nowhere_before(tmp_path: Path) -> None:
    candidate = faulty(tmp_path, "coarse", coarse_output)
    inputs = {"reference": MODEL, "candidate": candidate, "samples": validation_set(tmp_path, 4)}
    measure.run(job(tmp_path, {"boundary": "quantized"}, ("figures",), **inputs))
    found = json.loads((tmp_path / "figures").read_text())
    assert 0.0 < found["outputs"]["logits"]["max_abs"] <= 2.0001
    assert all(entry["max_abs"] < 1e-4 for entry in found["tensors"])
