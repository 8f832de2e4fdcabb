"""Each gate fails a real build on a fault planted in a stage: the boundary, the suspect and the first action are named,
and what was released last stays as it was. What else keeps an artifact from release.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npubake.graph.execution import run_model
from npubake.graph.importing import import_model
from npubake.verify.gates import BOUNDARIES
from tests.e2e.planting import python_path
from tests.e2e.workspace import Result, Workspace

USUAL = "quantized: {cosine: 0.98, sqnr_db: 15}"
ALL = "{calibrated: {sqnr_db: 15}, ptq: {sqnr_db: 20}, quantized: {cosine: 0.98, sqnr_db: 15}}"
NO_FIGURES = "{quantized: {cosine: null, sqnr_db: null}}"


def released(workspace: Workspace) -> dict[str, bytes]:
    folder = workspace.root / "build" / "small"
    return {
        name: (folder / name).read_bytes() for name in ("small.bundle", "small.npub", "contract.json", "manifest.json")
    }


def build_with_fault(workspace: Workspace, folder: Path, stage: str, fault: str, side: str = "outputs") -> Result:
    """A build in which every stage runs, ``stage`` with a fault."""
    path = python_path(folder / "plant", stage, fault, side)
    return workspace.run("build", "small", "--json", PYTHONPATH=path, NPUBAKE_STORE=str(folder / "store"))


@pytest.mark.parametrize(
    ("boundary", "stage", "fault", "gates"),
    [
        pytest.param("optimized", "optimize", "wrong_bias", ALL, marks=pytest.mark.untuned),
        ("calibrated", "tune", "clipped_output", ALL),
        pytest.param("ptq", "ptq", "coarse_output", ALL, marks=pytest.mark.untuned),
        pytest.param("quantized", "quantize", "coarse_output", ALL, marks=pytest.mark.untuned),
        pytest.param("product", "quantize", "shifted_classes", NO_FIGURES, marks=pytest.mark.untuned),
    ],
    ids=["optimized", "calibrated", "ptq", "quantized", "product"],
)
def test_a_planted_fault_fails_its_gate(
    built: Workspace, tmp_path: Path, boundary: str, stage: str, fault: str, gates: str
) -> None:
    before = released(built)
    built.edit(f"gates:\n  {USUAL}", f"gates: {gates}")
    result = build_with_fault(built, tmp_path, stage, fault)
    assert result.code == 1, result.err
    assert "Traceback" not in result.err
    assert f"gate {boundary}" in result.err
    (paragraph,) = result.json["faults"]  # one, however many figures fail
    blamed = BOUNDARIES["quantized" if boundary == "product" else boundary]  # the fault is in quantize
    suspect, action = blamed.alone or (blamed.suspect, blamed.action)  # what is before it passes
    assert paragraph["where"] == f"gate {boundary}"
    assert f"suspected: {suspect}; first: {action}" in paragraph["hint"]
    if boundary in ("quantized", "product"):
        assert "boundary calibrated passes" in paragraph["hint"]
    assert result.err.count(paragraph["hint"]) == 1
    outcomes = {task["role"]: task["outcome"] for task in result.json["tasks"]}
    assert outcomes[f"gate {boundary}"] == "failed"
    assert {outcomes[name] for name in ("compile", "verify", "package")} == {"skipped"}
    told = result.json["targets"]["small"]
    assert told["manifest"] is None
    failed = [entry for entry in told["gates"] if not entry["passed"]]
    assert {entry["boundary"] for entry in failed} == {boundary}
    row = {"boundary", "output", "figure", "value", "threshold", "passed"}
    assert all(entry.keys() >= row | {"what", "hint"} and entry["figure"] for entry in failed)
    assert all(row <= entry.keys() for entry in told["gates"])
    assert released(built) == before


@pytest.mark.untuned
def test_a_deployable_that_is_another_model_fails_in_verify(built: Workspace, tmp_path: Path) -> None:
    before = released(built)
    result = build_with_fault(built, tmp_path, "compile", "shifted_accumulator", "inputs")
    assert result.code == 1, result.err
    assert {task["stage"] for task in result.json["tasks"] if task["outcome"] == "failed"} == {"verify"}
    (fault,) = result.json["faults"]
    assert fault["where"] == "quantized -> deployable: logits"
    assert "compile" in fault["hint"]
    assert result.json["targets"]["small"]["manifest"] is None
    assert released(built) == before


def add_baseline(workspace: Workspace, shift: float) -> None:
    """What a training framework said of one input, ``shift`` a class beside the model's answer."""
    model = import_model((workspace.root / "models" / "digits_mobilenet.onnx").read_bytes(), {})
    pixels = np.random.default_rng(3).random((1, 1, 28, 28), dtype=np.float32)
    (answer,) = run_model(model, {"image": pixels}, ["logits"]).values()
    answer = answer + np.float32(shift) * np.arange(answer.size, dtype=np.float32)
    np.savez(workspace.root / "models" / "golden.npz", image=pixels, logits=answer)


def test_the_baseline_of_the_training_framework_is_the_first_boundary(built: Workspace) -> None:
    before = released(built)
    built.edit("digits_mobilenet.onnx", "digits_mobilenet.onnx\n  baseline: ../models/golden.npz")
    add_baseline(built, shift=0.0)
    assert built.build().ran() == ["import"]
    assert released(built)["small.bundle"] == before["small.bundle"]
    add_baseline(built, shift=5.0)
    result = built.run("build", "small", "--json")
    assert result.code == 1
    assert {task["stage"] for task in result.json["tasks"] if task["outcome"] == "failed"} == {"import"}
    (fault,) = result.json["faults"]
    assert "training framework" in fault["what"]
    assert "export" in fault["hint"]
    assert released(built)["small.bundle"] == before["small.bundle"]


@pytest.mark.untuned
def test_random_data_are_for_smoke_alone_and_mark_the_artifact(fresh: Workspace) -> None:
    fresh.edit("data: ../data/calibration", "data: random")
    refused = fresh.run("build", "small")
    assert refused.code == 2
    assert "smoke" in refused.err
    fresh.edit("data: random", "data: random\n  purpose: smoke")
    fresh.edit(USUAL, "quantized: {cosine: null, sqnr_db: null}")
    fresh.edit("max_drop: 0.1", "max_drop: 1.0")
    assert fresh.build().json["targets"]["small"]["deployable"] is False
    told = json.loads((fresh.root / "build" / "small" / "manifest.json").read_text())["reproducible"]
    assert told["calibration"]["purpose"] == "smoke"
    assert told["releasable"]["value"] is False
    assert any("smoke" in reason for reason in told["releasable"]["reasons"])
