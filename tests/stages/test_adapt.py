"""adapt on the digits classifier: what it writes, what it refuses, and that the same inputs give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.errors import StageError
from npubake.graph.execution import run_model
from npubake.graph.model_file import load_model
from npubake.stages import STAGES
from npubake.stages import adapt as stage
from tests.toolchains.digits import GRAY, Road, calibrated

OUTPUTS = tuple(STAGES["adapt"].outputs)


def adapted(folder: Path, params: dict[str, Any], **changed: str) -> Road:
    """The digits classifier's road with the stage's outputs. changed: other sources of its ports."""
    names = {"model": "optimize.model", "graph": "optimize.graph", "parameters": "calibrate.parameters"}
    names["statistics"] = "observe.statistics"
    return calibrated().branch(folder).run(stage, {**names, **changed}, OUTPUTS, {"lane": "a8w8", **params})


def test_the_models_and_the_record_go_together(tmp_path: Path) -> None:
    road = adapted(tmp_path, {"runtime_input": GRAY})
    record = road.record("adapt.record")
    model, compilable = load_model(road.files["adapt.model"]), load_model(road.files["adapt.compilable"])
    assert [value.name for value in compilable.graph.input] == list(record["inputs"])
    with SampleSet.open(road.files["samples"]) as samples:
        pixels, value = samples.read_stored(0)["image"].reshape(1, 1, 28, 28), samples.read(0)["image"]
    floats = run_model(model, {"image": value})["logits"]
    codes = run_model(compilable, {"image": pixels})["logits"]
    held = record["outputs"]["logits"]
    real = (codes.astype(np.float32) - held["zero_point"]) * np.float32(held["scale"])
    np.testing.assert_allclose(real, floats, atol=2 * held["scale"])


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = adapted(tmp_path / "a", {}), adapted(tmp_path / "b", {})
    for port in OUTPUTS:
        assert first.files[f"adapt.{port}"].read_bytes() == second.files[f"adapt.{port}"].read_bytes()


def test_without_parameters_it_is_the_float_model(tmp_path: Path) -> None:
    given = {"model": "optimize.model", "graph": "optimize.graph"}
    road = calibrated().branch(tmp_path).run(stage, given, OUTPUTS, {"lane": "fp16", "io": "float"})
    assert load_model(road.files["adapt.model"]) == load_model(road.files["optimize.model"])


def test_parameters_of_another_graph_are_refused(tmp_path: Path) -> None:
    road = calibrated().branch(tmp_path)
    road.files["another"] = tmp_path / "graph.json"
    road.files["another"].write_bytes(road.files["optimize.graph"].read_bytes() + b"\n")
    given = {"model": "optimize.model", "graph": "another", "parameters": "calibrate.parameters"}
    with pytest.raises(StageError):
        road.run(stage, given, OUTPUTS, {"lane": "a8w8"})
