"""stages: ``calibrate`` from files to files, on a small graph and on the real digit classifiers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from npubake.calibration.statistics import Statistics, TensorStatistics
from npubake.errors import RecipeError
from npubake.graph.importing import import_model
from npubake.graph.model_file import load_model, save_model
from npubake.graph.optimizing import optimize_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages.calibrate import run
from tests.quant.graphs import all_values, counted, session, sqnr

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Files of an optimised, observed model: what ``calibrate`` reads; and pictures that were not observed."""

    folder: Path
    validation: list[NDArray[np.float32]]
    calibration: list[NDArray[np.float32]]

    def calibrate(self, out: Path, params: Mapping[str, Any], threads: int = 1) -> dict[str, Path]:
        out.mkdir()
        outputs = {"model": out / "model.onnx", "parameters": out / "p.json", "record": out / "record.json"}
        files = {"model": "model.onnx", "graph": "graph.json", "statistics": "statistics.npz"}
        inputs = {port: (self.folder / name,) for port, name in files.items()}
        run(Job(params=params, inputs=inputs, outputs=outputs, threads=threads))
        return outputs

    def logits(self, path: Path) -> NDArray[np.float32]:
        made = session(load_model(path))
        return np.concatenate([made.run(None, {"image": picture})[0] for picture in self.validation])


def observe(name: str, folder: Path) -> Observed:
    """The real classifier, optimised, with statistics of its 64 calibration pictures."""
    optimised = optimize_model(import_model((ROOT / "models" / f"{name}.onnx").read_bytes(), {}))
    save_model(optimised.model, folder / "model.onnx")
    optimised.summary.save(folder / "graph.json")
    files = sorted((ROOT / "data" / "digits_cls" / "calibration").glob("*.npy"))
    pictures = [np.load(path)[None] for path in files]
    tensors: dict[str, TensorStatistics] = {}
    for picture in pictures:
        values = all_values(optimised.model, {"image": picture})
        for tensor in optimised.summary.quantisable():
            entry = counted(values[tensor])
            tensors[tensor] = tensors[tensor].merged(entry) if tensor in tensors else entry
    Statistics(samples=len(pictures), tensors=tensors).save(folder / "statistics.npz")
    images = np.load(ROOT / "data" / "digits_cls" / "validation.npz")["images"][:300]
    return Observed(folder=folder, validation=[image[None] for image in images], calibration=pictures)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return observe("digits_mobilenet", tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return observe("digits_vit", tmp_path_factory.mktemp("transformer"))


def params(lane: str, **more: Any) -> dict[str, Any]:
    return {"lane": lane, "input_ranges": {"image": [0, 1]}, "calibration": {"asymmetric": True}, **more}


class _Pictures(CalibrationDataReader):  # type: ignore[misc]
    """onnxruntime's way to be given pictures."""

    def __init__(self, pictures: list[NDArray[np.float32]]) -> None:
        self._left = iter(pictures)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        picture = next(self._left, None)
        return None if picture is None else {"image": picture}


def by_onnxruntime(item: Observed, out: Path, activation: QuantType) -> NDArray[np.float32]:
    """Logits of onnxruntime's own static quantisation: MinMax, per channel, the same pictures."""
    quantize_static(
        str(item.folder / "model.onnx"),
        str(out),
        _Pictures(item.calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=activation,
        weight_type=QuantType.QInt8,
    )
    return item.logits(out)


@pytest.mark.parametrize(
    ("lane", "activation", "least"), [("a8w8", QuantType.QUInt8, 30.0), ("a16w8", QuantType.QInt16, 37.0)]
)  # fmt: skip
@pytest.mark.parametrize("name", ["classifier", "transformer"])
def test_real_models_are_as_good_as_with_onnxruntime_or_better(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, lane: str, activation: QuantType, least: float
) -> None:
    item: Observed = request.getfixturevalue(name)
    reference = item.logits(item.folder / "model.onnx")
    ours = sqnr(reference, item.logits(item.calibrate(tmp_path / "out", params(lane))["model"]))
    theirs = sqnr(reference, by_onnxruntime(item, tmp_path / "theirs.onnx", activation))
    assert ours >= least
    assert ours >= theirs


def test_the_mixed_lane_and_float16_on_the_classifier(classifier: Observed, tmp_path: Path) -> None:
    reference = classifier.logits(classifier.folder / "model.onnx")
    mixed = classifier.calibrate(tmp_path / "mixed", params("fp16_a8w8"))["model"]
    half = classifier.calibrate(tmp_path / "half", params("fp16"))["model"]
    assert sqnr(reference, classifier.logits(mixed)) >= 30
    assert sqnr(reference, classifier.logits(half)) >= 60  # 11 significant bits a tensor


def test_all_three_artifacts_are_written_and_belong_together(classifier: Observed, tmp_path: Path) -> None:
    override = {"match": {"op_types": ["Add"]}, "set": {"activation": "int16"}}
    outputs = classifier.calibrate(tmp_path / "out", params("a8w8", layer_overrides=[override]))
    onnx.checker.check_model(load_model(outputs["model"]), full_check=True)
    parameters = QuantizationParameters.load(outputs["parameters"])
    assert parameters.graph_digest == hashlib.sha256((classifier.folder / "graph.json").read_bytes()).hexdigest()
    assert parameters.tensors["image"].scale == float(np.float32(1) / np.float32(255))
    record = json.loads(outputs["record"].read_text(encoding="utf-8"))
    summary = GraphSummary.load(classifier.folder / "graph.json")
    added = {group.name for group in summary.groups if group.kind == "add"}
    assert set(record["overrides"][0]["groups"]) == added
    assert {name for name, entry in parameters.groups.items() if entry.why == "layer_overrides[0]"} == added
    assert record["counts"]["tensors"]["int16"] >= 2 * len(added)
    assert {entry["old"] for entry in record["provenance"]} >= set(summary.quantisable())


def test_the_same_bytes_for_any_thread_count(classifier: Observed, tmp_path: Path) -> None:
    first = classifier.calibrate(tmp_path / "one", params("fp16_a8w8"), threads=1)
    second = classifier.calibrate(tmp_path / "two", params("fp16_a8w8"), threads=2)
    for port in first:
        assert first[port].read_bytes() == second[port].read_bytes()


def test_the_same_bytes_for_any_hash_seed(classifier: Observed, tmp_path: Path) -> None:
    """Sets of names are in play; their order must not reach a file."""
    override = {"match": {"op_types": ["Add"]}, "set": {"activation": "int16"}}
    ours = classifier.calibrate(tmp_path / "here", params("fp16_a8w8", layer_overrides=[override]))
    script = (
        "import sys, json; from pathlib import Path; from tests.stages.test_calibrate import Observed, params\n"
        "item = Observed(folder=Path(sys.argv[1]), validation=[], calibration=[])\n"
        "item.calibrate(Path(sys.argv[2]), params('fp16_a8w8', layer_overrides=[json.loads(sys.argv[3])]))"
    )
    for seed in ("1", "2"):
        out = tmp_path / seed
        command = [sys.executable, "-c", script, str(classifier.folder), str(out), json.dumps(override)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, check=True, env=environment, cwd=ROOT)
        for path in ours.values():
            assert (out / path.name).read_bytes() == path.read_bytes()


def test_an_override_that_matches_nothing_is_refused(classifier: Observed, tmp_path: Path) -> None:
    override = {"match": {"names": ["no_such_layer"]}, "set": {"activation": "int16"}}
    with pytest.raises(RecipeError) as caught:
        classifier.calibrate(tmp_path / "out", params("a8w8", layer_overrides=[override]))
    assert caught.value.faults[0].path.startswith("$.layer_overrides[0].match")
