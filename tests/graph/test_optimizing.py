"""graph.optimizing: whole graphs. Equal in function, every tensor accounted for by value, the same bytes anywhere."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from npubake.graph.execution import cosine, random_feeds, run_model
from npubake.graph.importing import import_model
from npubake.graph.model_file import serialise
from npubake.graph.optimizing import Optimized, optimize_model
from npubake.graph.provenance import identity
from npubake.graph.summary import GraphSummary
from tests.graph.cases import CASES
from tests.graph.networks import detector
from tests.graph.test_groups import assert_well_formed
from tests.graph.writing import assert_close, assert_provenance

MODELS = Path(__file__).parents[2] / "models"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def _assert_equal(model: onnx.ModelProto, optimized: Optimized, tolerance: float) -> None:
    feeds = random_feeds(model, seed=5)
    expected, actual = run_model(model, feeds), run_model(optimized.model, feeds)
    for name, value in expected.items():
        assert_close(actual[name], value, tolerance, name)
        assert cosine(actual[name], value) > 0.999999
    onnx.checker.check_model(optimized.model, full_check=True)
    assert {record.old for record in optimized.summary.provenance} == {record.old for record in identity(model)}
    assert_well_formed(optimized.model, optimized.summary.groups)


@pytest.mark.parametrize("case", [*CASES, "detector"])
def test_small_graphs_with_every_tensor_by_value(case: str) -> None:
    model = detector() if case == "detector" else CASES[case]()
    before = serialise(model)
    optimized = optimize_model(model)
    assert serialise(model) == before
    _assert_equal(model, optimized, 1e-4)
    assert_provenance(model, optimized.model, optimized.summary.provenance, 1e-4)
    again = optimize_model(optimized.model)
    assert serialise(again.model) == serialise(optimized.model)
    assert {record.relation for record in again.summary.provenance} == {"same"}


@pytest.mark.parametrize("name", ["digits_mobilenet", "digits_vit", "digits_yolo_640"])
def test_real_models(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    assert path.exists(), "the shipped models are part of the tests"
    model = import_model(path.read_bytes(), {})
    optimized = optimize_model(model)
    _assert_equal(model, optimized, 1e-3)
    assert_provenance(model, optimized.model, optimized.summary.provenance, 1e-3)
    kinds = {group.kind for group in optimized.summary.groups}
    assert "float" not in kinds
    operators = {node.op_type for node in optimized.model.graph.node}
    assert not operators & {"BatchNormalization", "Identity", "Constant", "Erf", "Shape", "Dropout"}


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_topologies_of_well_known_networks(name: str) -> None:
    model = import_model((LIGHT / f"light_{name}.onnx").read_bytes(), {})
    optimized = optimize_model(model)
    _assert_equal(model, optimized, 1e-3)
    assert "ConstantOfShape" not in {node.op_type for node in optimized.model.graph.node}


def test_the_summary_describes_the_model_and_survives_its_file(tmp_path: Path) -> None:
    optimized = optimize_model(detector())
    summary = optimized.summary
    assert summary.inputs == ("images",)
    assert summary.outputs == ("boxes", "scores")
    assert summary.tensors["boxes"].shape == (1, 4, 80)
    assert [node.name for node in summary.nodes] == [node.name for node in optimized.model.graph.node]
    for node in summary.nodes:
        assert all(name in summary.tensors for name in (*node.inputs, *node.outputs) if name)
    summary.save(tmp_path / "graph.json")
    assert GraphSummary.load(tmp_path / "graph.json") == summary


_SCRIPT = """
import hashlib, pathlib, sys
from npubake.graph.importing import import_model
from npubake.graph.model_file import serialise
from npubake.graph.optimizing import optimize_model
optimized = optimize_model(import_model(pathlib.Path(sys.argv[1]).read_bytes(), {}))
print(hashlib.sha256(serialise(optimized.model) + optimized.summary.to_json().encode()).hexdigest())
"""


def test_the_same_bytes_for_any_hash_seed_folder_and_locale(tmp_path: Path) -> None:
    path = MODELS / "digits_vit.onnx"
    optimized = optimize_model(import_model(path.read_bytes(), {}))
    here = hashlib.sha256(serialise(optimized.model) + optimized.summary.to_json().encode()).hexdigest()
    for seed in ("1", "77"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"}
        answer = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(path)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert answer.stdout.strip() == here
