"""stages: ``tune`` from files to files: what the stages behind it read, and the integer model that they make of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.calibration.inference import open_session
from npubake.errors import RecipeError, StageError
from npubake.fixedpoint.lower import lower_model
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages import STAGES, calibrate, tune
from tests.tuning.networks import pictures, prepare, write_samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its graph, samples, statistics, and what calibrate makes of them."""
    place = tmp_path_factory.mktemp("tune")
    prepare(place, count=12).statistics()
    run(calibrate.run, "calibrate", place, place, {"lane": "a8w8"})
    return place


def run(stage: Any, name: str, source: Path, target: Path, params: Mapping[str, Any], **files: Path) -> dict[str, Path]:
    known = {
        "model": source / "model.onnx",
        "graph": source / "graph.json",
        "statistics": source / "statistics.npz",
        "samples": source / "samples.npz",
        "parameters": source / "calibrate.parameters",
        **files,
    }
    inputs = {port: (known[port],) for port in STAGES[name].inputs if port in known}
    outputs = {port: target / f"{name}.{port}" for port in STAGES[name].outputs}
    stage(Job(params=params, inputs=inputs, outputs=outputs, threads=2))
    return outputs


PARAMS: dict[str, Any] = {"lane": "a8w8", "tuning": {"judge": False}, "hessian": {}, "bias_correction": "analytic"}


def test_the_integer_model_of_the_float_output_gives_the_model_output(folder: Path, tmp_path: Path) -> None:
    made = run(tune.run, "tune", folder, tmp_path, PARAMS)
    summary = GraphSummary.load(made["graph"])
    parameters = QuantizationParameters.load(made["parameters"])
    parameters.require_graph(made["graph"])
    integer = open_session(lower_model(load_model(made["float"]), summary, parameters, "float32").model, "integer", 1)
    fake = open_session(load_model(made["model"]), "fake", 1)
    plain = open_session(load_model(folder / "calibrate.model"), "plain", 1)
    errors = []
    for picture in pictures(6, seed=4):
        wanted, answer, before = (session.run(["y"], {"x": picture})[0] for session in (fake, integer, plain))
        assert np.abs(answer - wanted).max() <= 3 / 255  # the softmax of the two differs by its own tables
        errors.append((float(np.abs(answer - wanted).sum()), float(np.abs(answer - before).sum())))
    tuned, untuned = np.sum(errors, axis=0)
    assert tuned < untuned / 2


def test_the_record_is_calibrate_s_and_what_was_tried(folder: Path, tmp_path: Path) -> None:
    made = run(tune.run, "tune", folder, tmp_path, {"lane": "a8w8"})
    record = json.loads(made["record"].read_text())
    before = json.loads((folder / "calibrate.record").read_text())
    assert set(record) == {*before, "tuning"}
    assert {entry["old"] for entry in record["provenance"]} == {entry["old"] for entry in before["provenance"]}
    assert record["tuning"]["level"] == "default"
    tried = {trial["step"] for trial in record["tuning"]["trials"]}
    assert tried == {"bias_correction", "calibration_method", "hessian", "int16"}


def test_the_same_bytes_for_any_thread_count(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = (run(tune.run, "tune", folder, tmp_path / name, PARAMS) for name in ("one", "two"))
    for port, path in first.items():
        assert path.read_bytes() == second[port].read_bytes()


def test_what_could_not_be_judged_is_told(folder: Path, tmp_path: Path) -> None:
    def warned(params: Mapping[str, Any], **files: Path) -> int:
        made = run(tune.run, "tune", folder, tmp_path, {"lane": "a8w8", **params}, **files)
        return sum(text.startswith("tuning: ") for text in json.loads(made["record"].read_text())["warnings"])

    write_samples(tmp_path / "few.npz", pictures(3))
    few = {"samples": tmp_path / "few.npz"}
    assert (warned({}, **few), warned({})) == (1, 0)
    assert warned({"tuning": {"level": "none"}, "hessian": {}}, **few) == 0
    assert warned({"tuning": {"judge": False}, "hessian": {}}, **few) == 0


def test_loaded_scales_stay(folder: Path, tmp_path: Path) -> None:
    given = QuantizationParameters.load(folder / "calibrate.parameters")
    files = {"scales": folder / "calibrate.parameters"}
    made = run(tune.run, "tune", folder, tmp_path, {"lane": "a8w8"}, **files)
    assert QuantizationParameters.load(made["parameters"]).tensors == given.tensors
    assert json.loads(made["record"].read_text())["loaded_scales"]["moved"] == []


def test_parameters_of_another_graph_are_refused(folder: Path, tmp_path: Path) -> None:
    text = (folder / "graph.json").read_text()
    (tmp_path / "graph.json").write_text(text + "\n")
    with pytest.raises(StageError):
        run(tune.run, "tune", folder, tmp_path, PARAMS, graph=tmp_path / "graph.json")


def test_a_transformed_graph_may_win(folder: Path, tmp_path: Path) -> None:
    """The second graph here is the first one but for a remark: it gains nothing, so the first is kept, and said so."""
    files = {f"transformed_{kind}": folder / name for kind, name in FIRST.items()}
    same = run(tune.run, "tune", folder, tmp_path, {"lane": "a8w8"}, **files)
    steps = {trial["step"] for trial in json.loads(same["record"].read_text())["tuning"]["trials"]}
    assert "equivalent_transformation" not in steps  # the very same bytes are not tried twice
    assert not any("equivalent_transformation" in text for text in json.loads(same["record"].read_text())["warnings"])
    asked = {"lane": "a8w8", "equivalent_transformation": True}
    idle = run(tune.run, "tune", folder, tmp_path, asked, **files)
    (told,) = (text for text in json.loads(idle["record"].read_text())["warnings"] if "transformation" in text)
    assert "nothing was found to gain" in told
    model = load_model(folder / "model.onnx")
    model.doc_string = "transformed"
    files["transformed_model"] = tmp_path / "transformed.onnx"
    save_model(model, files["transformed_model"])
    made = run(tune.run, "tune", folder, tmp_path, {"lane": "a8w8"}, **files)
    record = json.loads(made["record"].read_text())["tuning"]
    trial = next(trial for trial in record["trials"] if trial["step"] == "equivalent_transformation")
    assert trial["before"] == trial["after"]
    assert record["start"] == "optimised"
    params = {"lane": "a8w8", "tuning": {"judge": False}, "equivalent_transformation": True}
    made = run(tune.run, "tune", folder, tmp_path, params, **files)
    assert json.loads(made["record"].read_text())["tuning"]["start"] == "transformed"


def test_the_layers_of_mod_are_named_by_patterns(folder: Path, tmp_path: Path) -> None:
    """Their node names of the optimised graph; the float model that leaves differs in that layer alone."""
    summary = GraphSummary.load(folder / "graph.json")
    first, *_ = (group for group in summary.groups if group.kind == "conv")
    params = {"lane": "a8w8", "tuning": {"level": "none", "judge": False}}
    made = run(tune.run, "tune", folder, tmp_path, {**params, "mod": {"layers": [first.name], "epochs": 3}})
    (trial,) = json.loads(made["record"].read_text())["tuning"]["trials"]
    assert (trial["step"], trial["settings"]["layers"]) == ("mod", 1)
    before, after = (
        {tensor.name: tensor.raw_data for tensor in load_model(path).graph.initializer}
        for path in (folder / "model.onnx", made["float"])
    )
    weights = QuantizationParameters.load(made["parameters"]).weights[first.name].initializer
    changed = {name for name, value in before.items() if after[name] != value}
    assert weights in changed
    assert len(changed) == 2  # and its bias
    with pytest.raises(RecipeError):
        run(tune.run, "tune", folder, tmp_path, {**params, "mod": {"layers": ["nowhere"]}})


FIRST = {"model": "model.onnx", "graph": "graph.json", "statistics": "statistics.npz"}
