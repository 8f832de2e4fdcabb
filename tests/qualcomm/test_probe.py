"""The probe on whole models: what the SoC's compiler takes is known before calibration, all of it at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from npubake.errors import BuildError, PlatformError, RecipeError
from npubake.graph.importing import import_model
from npubake.graph.model_file import save_model
from npubake.graph.optimizing import optimize_model
from npubake.pipeline.stage import Job
from npubake.stages import probe
from npubake.toolchains.qualcomm.htp.smoke import smoke
from npubake.toolchains.qualcomm.probe import probe as installed
from tests.qualcomm import needs_qnn
from tests.qualcomm.networks import platform

pytestmark = needs_qnn

MODELS = Path(__file__).parents[2] / "models"
LANES = ("a8w8", "a16w8", "a16w16", "w4a16", "fp16", "fp16_a8w8")
V68 = ("a8w8", "a16w8", "w4a16")


def probed(
    model: onnx.ModelProto, folder: Path, lane: str = "a8w8", soc_model: str = "77", **more: Any
) -> dict[str, Any]:
    """The report of the stage on a float model."""
    optimised = optimize_model(model)
    save_model(optimised.model, folder / "model")
    optimised.summary.save(folder / "graph")
    facts = platform(soc_model)
    params = {
        "lane": lane,
        "quantisers": "everywhere",
        "platform": {
            "name": facts.name,
            "soc_model": soc_model,
            "march": ",".join(facts.arch),
            "vtcm_bytes": facts.vtcm_bytes,
            "lanes": list(V68 if soc_model == "93" else LANES),
        },
        **more,
    }
    inputs = {port: (folder / port,) for port in ("model", "graph")}
    probe.run(Job(params=params, inputs=inputs, outputs={"report": folder / "report"}))
    report: dict[str, Any] = json.loads((folder / "report").read_text())
    return report


def source(name: str) -> onnx.ModelProto:
    """A model of the recipes, as ``import`` leaves it."""
    shapes = {} if name == "digits_yolo_640" else {"image": [1, 1, 28, 28]}
    return import_model((MODELS / f"{name}.onnx").read_bytes(), shapes)


def chain(*operators: str) -> onnx.ModelProto:
    """Operators of one input, in a row, named by their place."""
    names = [f"t{index}" for index in range(len(operators))] + ["y"]
    lines = [f"[op{index}] {names[index + 1]} = {op}({names[index]})" for index, op in enumerate(operators)]
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
    small (float[1, 4, 8, 8] t0) => (float[1, 4, 8, 8] y) {{ {" ".join(lines)} }}"""
    model: onnx.ModelProto = parser.parse_model(text)
    return model


@pytest.mark.parametrize("soc_model", ["77", "82", "77,82", "93"])
@pytest.mark.parametrize("name", ["digits_mobilenet", "digits_vit", "digits_yolo_640"])
def test_that_the_models_of_the_recipes_are_taken(name: str, soc_model: str, tmp_path: Path) -> None:
    report = probed(source(name), tmp_path, soc_model=soc_model)
    assert report["soc_model"] == soc_model
    assert sum(report["qnn_operators"].values()) > 20
    assert report["cpu_nodes"] == []


@pytest.mark.parametrize("lane", ["a16w8", "fp16"])
def test_that_other_lanes_of_the_classifier_are_taken(lane: str, tmp_path: Path) -> None:
    assert probed(source("digits_mobilenet"), tmp_path, lane)["lane"] == lane


def refused(error: type[BuildError], operators: Sequence[str], folder: Path, **asked: Any) -> BuildError:
    with pytest.raises(error) as found:
        probed(chain(*operators), folder, **asked)
    return found.value


def test_that_all_unsupported_operators_are_named_at_once(tmp_path: Path) -> None:
    found = refused(RecipeError, ("Sigmoid", "Sinh", "Relu", "Softsign", "Acosh"), tmp_path)
    assert [fault.where for fault in found.faults] == ["op1", "op3", "op4"]
    assert ["no operator" in fault.what for fault in found.faults] == [True] * 3


def test_that_a_lane_of_another_soc_is_refused_before_any_compile(tmp_path: Path) -> None:
    found = refused(PlatformError, ("Sigmoid",), tmp_path, lane="a16w16", soc_model="93")
    assert "lane a16w16 cannot run on qcs6490 (HTP v68)" in found.faults[0].what
    assert "a16w8" in found.faults[0].hint


def test_that_named_nodes_may_stay_on_the_cpu(tmp_path: Path) -> None:
    report = probed(chain("Sigmoid", "Sinh", "Relu"), tmp_path, options={"cpu_nodes": ["op1"]})
    assert report["cpu_nodes"] == ["op1"]


def test_a_node_that_the_cpu_cannot_take_is_refused_though_it_is_named(tmp_path: Path) -> None:
    """The provider crashes at it."""
    (fault,) = refused(
        RecipeError, ("Sigmoid", "Mish", "Sinh", "Relu"), tmp_path, options={"cpu_nodes": ["op1", "op2"]}
    ).faults
    assert fault.where == "op1"
    assert "x * Tanh(Softplus(x))" in fault.hint
    assert "cpu_nodes" not in fault.hint


def test_that_the_smoke_compile_tells_the_versions() -> None:
    found = smoke()
    assert found.compiled, found.why
    assert found.tools["onnxruntime_qnn"] == installed().version
    assert found.build_id.startswith(f"v{found.tools['qnn']}.")
