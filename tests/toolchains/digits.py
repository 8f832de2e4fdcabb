"""The digits classifier on real digits, from optimize to calibrate, made once for all tests that need a real model."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from npubake.calibration.preprocessing import LinearStep
from npubake.calibration.samples import Example, InputForm, SampleWriter, Source
from npubake.pipeline.stage import Job
from npubake.recipe.presets import Preprocessing, Resize
from npubake.stages import calibrate, compile, import_model, observe, optimize, package, quantize, verify  # noqa: A004

ROOT = Path(__file__).resolve().parents[2]
J6E = {"name": "j6e", "soc": "J6E", "march": "nash-e", "nv12_stride_bytes": 32, "tensor_unit_bytes": 64,
       "tail": "int32", "max_l2m_bytes": None}  # fmt: skip
J6P = {"name": "j6p", "soc": "J6P", "march": "nash-p", "nv12_stride_bytes": 64, "tensor_unit_bytes": 256,
       "tail": "float32", "max_l2m_bytes": 25165824}  # fmt: skip
PICTURE = Preprocessing(
    name="custom", decode="pillow", channels="gray", resize=Resize(kind="resize_exact", size=(28, 28)),
    divide_by=255, input_dtype="uint8",
).expanded()  # fmt: skip
GRAY = {"image": {"type": "gray", "channels": "gray", "divide_by": 255}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """Artifacts by ``stage.port``; each stage writes its own."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)

    def run(self, stage: Any, inputs: Mapping[str, str], outputs: tuple[str, ...], params: Mapping[str, Any]) -> Road:
        """Run a stage module; inputs name ``stage.port`` of artifacts that are there. Returns a road that has more."""
        name = stage.__name__.rpartition(".")[2]
        made = {port: self.folder / f"{name}.{port}" for port in outputs}
        job = Job(
            params=params,
            inputs={port: (self.files[source],) for port, source in inputs.items()},
            outputs=made,
        )
        stage.run(job)
        return Road(folder=self.folder, files={**self.files, **{f"{name}.{port}": path for port, path in made.items()}})

    def branch(self, folder: Path) -> Road:
        """The same artifacts; what is made from here on lands in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        return Road(folder=folder, files=dict(self.files))

    def record(self, name: str) -> Any:
        return json.loads(self.files[name].read_text(encoding="utf-8"))


def write_samples(path: Path, count: int) -> None:
    """Real digits as uint8 pixels [28, 28, 1], linear step x / 255."""
    step = LinearStep(channels="gray", divide_by=255.0, mean=(0.0,), std=(1.0,), layout="NCHW")
    form = InputForm(shape=(1, 1, 28, 28), dtype="float32", linear=step)
    sources = sorted((ROOT / "data/digits_cls/calibration").glob("*.npy"))[:count]
    assert len(sources) == count
    with SampleWriter(path, {"image": form}) as writer:
        for source in sources:
            pixels = np.rint(np.load(source).reshape(28, 28, 1) * 255).astype(np.uint8)
            facts = Source(name=source.name, digest="0" * 64)
            writer.add(Example(stored={"image": pixels}, geometry={}, sources={"image": facts}))
        writer.finish({"random": False, "preset": PICTURE})


@cache
def calibrated() -> Road:
    """import, optimize, observe, calibrate (a8w8) of models/digits_mobilenet.onnx."""
    return _calibrated(ROOT / "models/digits_mobilenet.onnx")


@cache
def with_softmax() -> Road:
    """The same with a Softmax behind its logits: output ``probabilities``."""
    model = onnx.load(ROOT / "models/digits_mobilenet.onnx")
    model.graph.node.append(onnx.helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax", axis=1))
    model.graph.output[0].name = "probabilities"
    folder = Path(tempfile.mkdtemp(prefix="npubake-digits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    onnx.save(model, folder / "softmax.onnx")
    return _calibrated(folder / "softmax.onnx")


def _calibrated(model: Path) -> Road:
    folder = Path(tempfile.mkdtemp(prefix="npubake-digits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_samples(folder / "samples", 16)
    road = Road(folder=folder, files={"model": model, "samples": folder / "samples"})
    road = road.run(import_model, {"model": "model"}, ("model",), {})
    road = road.run(optimize, {"model": "import_model.model"}, ("model", "graph"), {})
    both = {"model": "optimize.model", "graph": "optimize.graph"}
    road = road.run(observe, {**both, "samples": "samples"}, ("statistics",), {})
    params = {"lane": "a8w8", "input_ranges": {"image": [0.0, 1.0]}}
    return road.run(calibrate, {**both, "statistics": "observe.statistics"}, ("model", "parameters", "record"), params)


def quantised(road: Road, params: Mapping[str, Any]) -> Road:
    inputs = {"model": "optimize.model", "graph": "optimize.graph", "parameters": "calibrate.parameters"}
    return road.run(quantize, inputs, ("model", "removed", "record"), params)


def compiled(road: Road, params: Mapping[str, Any]) -> Road:
    inputs = {"model": "quantize.model", "removed": "quantize.removed", "record": "quantize.record"}
    return road.run(compile, inputs, ("deployable", "contract"), {"preset": PICTURE, **params})


def verified(road: Road, params: Mapping[str, Any], model: str = "quantize.model") -> Road:
    inputs = {"deployable": "compile.deployable", "model": model, "samples": "samples", "record": "quantize.record"}
    return road.run(verify, inputs, ("record", "outputs"), params)


def packaged(road: Road) -> Road:
    inputs = {"deployable": "compile.deployable", "contract": "compile.contract", "archive": "samples",
              "verified": "verify.record", "outputs": "verify.outputs"}  # fmt: skip
    return road.run(package, inputs, ("bundle", "deployable", "contract"), {})
