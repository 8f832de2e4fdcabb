"""Stage ``transform``: what it writes for the real classifier, and a rewrite that changes the function is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npubake.errors import StageError
from npubake.graph.editing import GraphEditor
from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary
from npubake.graph.transforming import Transformed
from npubake.graph.transforming import transform as true_transform
from npubake.pipeline.stage import Job
from npubake.stages import observe, transform
from tests.calibration.sets import PREPARED, build, job, request
from tests.graph.transforms.observing import spread
from tests.graph.writing import build as build_model
from tests.graph.writing import normal

PORTS = ("model", "graph", "record")


def _job(folder: Path, params: dict[str, Any]) -> Job:
    """Two layers with unlike channels and a hard swish, observed on four random examples."""
    model = build_model(
        "float[1,3,4,4] x => float[1,5,4,4] y",
        "t = Conv(x, w1, b1) h = HardSwish(t) u = Conv(h, w3, b3) r = Relu(u) y = Conv(r, w2, b2)",
        w1=spread(6, 3, 1, 1), b1=normal(6), w3=spread(6, 6, 1, 1), b3=spread(6), w2=np.ones((5, 6, 1, 1), np.float32),
        b2=normal(5),
    )  # fmt: skip
    onnx.save(model, folder / "model.onnx")
    summarise(model, ()).save(folder / "graph.json")
    files = []
    for index in range(4):
        files.append(folder / f"{index}.npy")
        np.save(files[-1], normal(1, 3, 4, 4, seed=index, scale=1.0))
    graph = GraphSummary.load(folder / "graph.json")
    build([{"": file} for file in files], graph, request(PREPARED), folder / "samples.npz")
    inputs = {"model": folder / "model.onnx", "graph": folder / "graph.json", "samples": folder / "samples.npz"}
    observe.run(job(folder, {}, ("statistics",), **inputs))
    made = folder / "made"
    made.mkdir()
    return job(made, params, PORTS, **inputs, statistics=folder / "statistics")


def test_model_graph_and_record_fit_each_other(tmp_path: Path) -> None:
    run = _job(tmp_path, {})
    transform.run(run)
    model, graph = onnx.load(run.outputs["model"]), GraphSummary.load(run.outputs["graph"])
    record = json.loads(run.outputs["record"].read_text())
    assert [node.name for node in model.graph.node] == [node.name for node in graph.nodes]
    assert {entry["kind"] for entry in record["scaled"]} == {"weighted", "function"}
    assert record["cosine"]["y"] >= transform.LEAST_COSINE
    assert "h/equalized" in graph.quantisable()
    gone = {entry["old"] for entry in record["provenance"] if entry["relation"] == "gone"}
    assert gone == {"u", "r"}
    first = run.outputs["model"].read_bytes()
    transform.run(run)
    assert run.outputs["model"].read_bytes() == first


def test_layers_that_are_kept_out(tmp_path: Path) -> None:
    off = {"match": {"op_types": ["Conv"]}, "set": {"equivalent_transformation": False}}
    run = _job(tmp_path, {"layer_overrides": [off]})
    transform.run(run)
    record = json.loads(run.outputs["record"].read_text())
    assert record["scaled"] == []
    assert any("excluded" in entry["why"] for entry in record["declined"]["cross_layer_equalization"])
    assert set(record["declined"]) == {"cross_layer_equalization", "smoothing"}


def test_a_function_that_changed_is_refused_by_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: onnx.ModelProto, *rest: Any) -> Transformed:
        made = true_transform(model, *rest)
        editor = GraphEditor(made.model)
        last = editor.nodes[-1]
        shifted = editor.add_constant("wrong", editor.needed_constant(last.input[2]) + np.float32(0.05))
        editor.set_inputs(last, [*last.input[:2], shifted])
        return replace(made, model=editor.finish())

    monkeypatch.setattr(transform, "transform", wrong)
    with pytest.raises(StageError) as caught:
        transform.run(_job(tmp_path, {}))
    (fault,) = caught.value.faults
    assert fault.where == "y"
    assert "below 0.99999" in fault.what


def test_where_nothing_is_gained_the_same_bytes_go_on(tmp_path: Path) -> None:
    """So that observing them again is known to the store."""
    everything = {"match": {"names": ["*"]}, "set": {"equivalent_transformation": False}}
    run = _job(tmp_path, {"layer_overrides": [everything]})
    transform.run(run)
    for port in ("model", "graph"):
        assert run.outputs[port].read_bytes() == run.input(port).read_bytes()
    record = json.loads(run.outputs["record"].read_text())
    assert (record["scaled"], record["absorbed"], record["cosine"]) == ([], [], {})
    assert {entry["relation"] for entry in record["provenance"]} == {"same"}
