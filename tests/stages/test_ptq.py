"""stages: ``ptq`` on the transformer: tables between Quantize and Dequantize, equal to the independent evaluator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from npubake.errors import StageError
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import QuantizationParameters
from npubake.quant.qdq import calibrated_model
from npubake.stages.ptq import run
from tests.fixedpoint.builds import Case, Level, exposing, session
from tests.fixedpoint.evaluator import KINDS, Evaluator, Tensor
from tests.fixedpoint.test_models import classifier, images

NONLINEAR = ("table", "softmax", "layer_norm")


@dataclass(frozen=True, kw_only=True)
class Made:
    """The case, its calibrated model, and what the stage wrote."""

    case: Case
    calibrated: onnx.ModelProto
    model: onnx.ModelProto
    record: Mapping[str, Any]


def bake(name: str, lane: str, folder: Path) -> Made:
    case = classifier(name, lane)
    calibrated = calibrated_model(case.model, case.summary, model_facts(case.model), case.parameters).model
    save_model(calibrated, folder / "calibrated.onnx")
    case.summary.save(folder / "graph.json")
    digest = hashlib.sha256((folder / "graph.json").read_bytes()).hexdigest()
    parameters = json.loads(json.dumps({**asdict(case.parameters), "graph_digest": digest}))
    (folder / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
    run(job(folder))
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return Made(case=case, calibrated=calibrated, model=load_model(folder / "ptq.onnx"), record=record)


def job(folder: Path) -> Job:
    inputs = {"model": "calibrated.onnx", "graph": "graph.json", "parameters": "parameters.json"}
    outputs = {"model": "ptq.onnx", "record": "record.json"}
    return Job(
        params={},
        inputs={port: (folder / name,) for port, name in inputs.items()},
        outputs={port: folder / name for port, name in outputs.items()},
    )


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return bake("digits_vit", "a8w8", tmp_path_factory.mktemp("vit"))


def test_nonlinear_operators_are_gone(vit: Made) -> None:
    kinds = {node.op_type for node in vit.model.graph.node}
    assert not kinds & {"Softmax", "LayerNormalization", "Gelu", "Erf"}
    assert kinds >= {"GatherElements", "MatMul", "QuantizeLinear", "DequantizeLinear"}
    kept = {node.name for node in vit.model.graph.node}
    replaced = {name for group in vit.case.summary.groups if group.kind in NONLINEAR for name in group.nodes}
    assert {node.name for node in vit.case.summary.nodes} - kept == replaced


def test_every_table_equals_the_evaluator(vit: Made) -> None:
    groups = [group for group in vit.case.summary.groups if group.kind in NONLINEAR]
    names = [f"{name}/quantized" for group in groups for name in (group.inputs[0], group.outputs[0])]
    runner = session(exposing(vit.model, names), Level.ORT_DISABLE_ALL)
    found = dict(zip(names, runner.run(names, {vit.case.summary.inputs[0]: images()[:1]}), strict=True))
    parameters = json.loads(json.dumps(asdict(vit.case.parameters)))
    evaluator = Evaluator(vit.case.model, json.loads(vit.case.summary.to_json()), parameters)

    def centred(name: str) -> NDArray[np.int64]:
        zero_point = vit.case.parameters.tensors[name].zero_point
        return np.asarray(found[f"{name}/quantized"].astype(np.int64) - zero_point)

    for group in groups:
        evaluator.values[group.inputs[0]] = Tensor(centred(group.inputs[0]), True)
        KINDS[group.kind](evaluator, json.loads(json.dumps(asdict(group))))
        expected = evaluator.values[group.outputs[0]].data
        np.testing.assert_array_equal(centred(group.outputs[0]), expected)


def test_record_bounds_every_table(vit: Made) -> None:
    tables = {entry["group"]: entry for entry in vit.record["tables"]}
    wanted = {group.name for group in vit.case.summary.groups if group.kind in ("table", "softmax")}
    assert set(tables) == wanted
    inner = {group.name for group in vit.case.summary.groups if set(group.inputs) & set(vit.case.parameters.inner)}
    assert {name: entry["entries"] for name, entry in tables.items()} == {
        name: 65536 if name in inner else 256 for name in wanted
    }
    assert inner  # the transformer's GELU
    assert all(0 < entry["max_error_lsb"] <= 0.5 + 1e-6 for entry in tables.values())
    assert all(0 <= entry["saturated"] < entry["entries"] for entry in tables.values())


def test_provenance_holds_by_value(vit: Made) -> None:
    """Every tensor that stayed is close to the float model's, and none that a quantiser stands on is gone."""
    entries = {entry["old"]: entry["new"] for entry in vit.record["provenance"] if entry["relation"] == "same"}
    facts = vit.case.summary.tensors
    names = [old for old in entries if facts[old].dtype == "float32" and old not in vit.case.summary.inputs]
    feeds = {vit.case.summary.inputs[0]: images()[:1]}
    exact = session(exposing(vit.case.model, names)).run(names, feeds)
    news = [entries[name] for name in names]
    found = session(exposing(vit.model, news), Level.ORT_DISABLE_ALL).run(news, feeds)
    for name, expected, value in zip(names, exact, found, strict=True):
        cosine = float((expected * value).sum() / np.sqrt((expected**2).sum() * (value**2).sum()))
        assert cosine > 0.9, name
    gone = {entry["old"] for entry in vit.record["provenance"] if entry["relation"] == "gone"}
    assert not gone & set(vit.case.summary.quantisable())


def test_logits_stay_close_to_the_calibrated_model(vit: Made) -> None:
    source = vit.case.summary.inputs[0]
    runners = [session(model, Level.ORT_DISABLE_ALL) for model in (vit.calibrated, vit.model)]
    before, after = (
        np.concatenate([runner.run(None, {source: images()[i : i + 1]})[0] for i in range(20)]) for runner in runners
    )
    assert 10 * np.log10(np.square(before).sum() / np.square(before - after).sum()) > 25


def test_float_groups_keep_their_nodes(tmp_path: Path) -> None:
    made = bake("digits_vit", "fp16_a8w8", tmp_path)
    assert {node.op_type for node in made.model.graph.node} >= {"Softmax", "LayerNormalization", "Gelu"}
    assert made.record["tables"] == []
    alive = {name for node in made.model.graph.node for name in node.output} | {made.case.summary.inputs[0]}
    assert {entry["new"] for entry in made.record["provenance"]} <= alive


def test_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    bake("digits_vit", "a8w8", tmp_path)
    first = (tmp_path / "ptq.onnx").read_bytes(), (tmp_path / "record.json").read_bytes()
    run(job(tmp_path))
    assert first == ((tmp_path / "ptq.onnx").read_bytes(), (tmp_path / "record.json").read_bytes())


def test_another_graph_is_refused(tmp_path: Path) -> None:
    bake("digits_mobilenet", "a8w8", tmp_path)
    graph = GraphSummary.load(tmp_path / "graph.json")
    (tmp_path / "graph.json").write_text(graph.to_json() + "\n", encoding="utf-8")
    with pytest.raises(StageError) as caught:
        run(job(tmp_path))
    assert caught.value.faults[0].where == "parameters"
    assert QuantizationParameters.load(tmp_path / "parameters.json").lane == "a8w8"
