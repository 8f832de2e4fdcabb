"""Stage ``gate``: each gate fails on a fault planted in the real classifier, and passes without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from npubake.errors import GateError
from npubake.stages import gate, measure, measure_product
from tests.calibration.sets import job
from tests.stages import planted

Plant = Callable[[onnx.ModelProto], None]


def measured(folder: Path, boundary: str, candidate: Path) -> Path:
    inputs = {"reference": planted.MODEL, "candidate": candidate, "samples": planted.validation_set(folder, 8)}
    measure.run(job(folder, {"boundary": boundary}, ("figures",), **inputs))
    return folder / "figures"


@pytest.mark.parametrize(
    ("boundary", "plant", "figure"),
    [
        ("optimized", planted.wrong_bias, "cosine"),
        ("calibrated", planted.clipped_output, "sqnr_db"),
        ("ptq", planted.coarse_output, "sqnr_db"),
        ("quantized", planted.coarse_output, "sqnr_db"),
        ("quantized", planted.not_a_number, "cosine"),
        ("deployable", planted.shifted_classes, "cosine"),
    ],
)
def test_a_planted_fault_fails_its_gate(tmp_path: Path, boundary: str, plant: Plant, figure: str) -> None:
    figures = measured(tmp_path, boundary, planted.faulty(tmp_path, "bad", plant))
    with pytest.raises(GateError) as caught:
        gate.run(job(tmp_path, {"boundary": boundary}, ("verdict",), figures=[figures]))
    assert not (tmp_path / "verdict").exists()
    assert any(figure in fault.what and "'logits'" in fault.what for fault in caught.value.faults)
    assert all(fault.where == f"gate {boundary}" and "first:" in fault.hint for fault in caught.value.faults)


@pytest.mark.parametrize("boundary", ["optimized", "calibrated", "ptq", "quantized", "deployable"])
def test_without_a_fault_it_passes_and_says_by_how_much(tmp_path: Path, boundary: str) -> None:
    figures = measured(tmp_path, boundary, planted.MODEL)
    gate.run(job(tmp_path, {"boundary": boundary}, ("verdict",), figures=[figures]))
    verdict = json.loads((tmp_path / "verdict").read_text())
    assert all(check["passed"] and check["value"] >= check["threshold"] for check in verdict)
    assert {check["output"] for check in verdict} == {"logits"}


def product(folder: Path, name: str, model: Path) -> Path:
    (folder / name).mkdir()
    inputs = {"model": model, "samples": planted.validation_set(folder, 200), "labels": [planted.VALIDATION]}
    measure_product.run(job(folder / name, {"metric": "top1"}, ("figures",), **inputs))
    return folder / name / "figures"


def test_the_product_gate_fails_where_answers_are_lost(tmp_path: Path) -> None:
    params = {"boundary": "product", "thresholds": {"max_drop": 0.01}}
    good = product(tmp_path, "good", planted.MODEL)
    bad = product(tmp_path, "bad", planted.faulty(tmp_path, "bad", planted.shifted_classes))
    with pytest.raises(GateError):
        gate.run(job(tmp_path, params, ("verdict",), figures=[good, bad]))
    gate.run(job(tmp_path, params, ("verdict",), figures=[good, good]))
    (check,) = json.loads((tmp_path / "verdict").read_text())
    assert (check["boundary"], check["output"], check["figure"], check["value"]) == ("product", "top1", "drop", 0.0)
