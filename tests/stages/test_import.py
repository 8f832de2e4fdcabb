"""stages.import_model: the adapter, from files to files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.errors import RecipeError, StageError
from npubake.graph.execution import run_model
from npubake.graph.model_file import load_model, save_model
from npubake.pipeline.stage import Job
from npubake.stages import STAGES
from tests.graph.writing import normal, parse


def _run(tmp_path: Path, params: dict[str, Any], baseline: Path | None = None) -> Path:
    source = parse(
        'float["batch",3,"h",8] images => float["batch",4,"h",8] y',
        "y = Conv<pads=[1,1,1,1]>(images, w)", {"w": normal(4, 3, 3, 3)}, opset=13,
    )  # fmt: skip
    save_model(source, tmp_path / "source.onnx")
    module, function = STAGES["import"].run.split(":")
    inputs = {"model": (tmp_path / "source.onnx",), "baseline": (baseline,) if baseline is not None else ()}
    job = Job(params=params, inputs=inputs, outputs={"model": tmp_path / "model.onnx"})
    getattr(import_module(module), function)(job)
    return job.outputs["model"]


def test_the_stage_writes_the_original_float_model(tmp_path: Path) -> None:
    params = {"inputs": {"images": {"shape": [1, 3, 8, 8], "layout": "NCHW"}}}
    path = _run(tmp_path, params)
    first = path.read_bytes()
    assert [dim.dim_value for dim in load_model(path).graph.input[0].type.tensor_type.shape.dim] == [1, 3, 8, 8]
    assert _run(tmp_path, params).read_bytes() == first


def test_an_input_that_is_only_named_must_exist_too(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        _run(tmp_path, {"inputs": {"imagez": {"layout": "NCHW"}}})
    assert {fault.path for fault in caught.value.faults} == {"$.model.inputs.imagez", "$.model.inputs.images.shape"}


def test_the_baseline_is_compared(tmp_path: Path) -> None:
    params: dict[str, Any] = {"inputs": {"images": {"shape": [1, 3, 8, 8]}}}
    feed = normal(1, 3, 8, 8)
    answer = run_model(load_model(_run(tmp_path, params)), {"images": feed})["y"]
    golden = tmp_path / "golden.npz"
    np.savez(golden, images=feed, y=answer)
    _run(tmp_path, params, golden)
    np.savez(golden, images=feed, y=answer[:, ::-1])
    with pytest.raises(StageError):
        _run(tmp_path, params, golden)
    _run(tmp_path, {**params, "baseline_cosine": -1.0}, golden)
