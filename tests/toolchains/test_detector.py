"""The detector on real photographs: nv12 baked in gives the integers of the float input, on board buffers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.fixedpoint.colour import RuntimeInput
from npubake.layout.runtime_input import decode, encode
from npubake.pipeline.stage import Job
from npubake.recipe.presets import PRESETS
from npubake.stages import calibrate, import_model, observe, optimize, package, samples
from npubake.toolchains.reference.bundle import verify_bundle
from npubake.toolchains.reference.executor import Executor
from npubake.toolchains.reference.package_file import Package
from npubake.toolchains.reference.running import load_deployable, run_files
from tests.toolchains.digits import J6P, ROOT, Road, compiled, quantised, verified

NV12: dict[str, Any] = {"type": "nv12", "range": "video"}
IMAGES = sorted((ROOT / "data/digits/calibration").glob("*.jpg"))[:2]


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """import to calibrate (a8w8) of models/digits_yolo_640.onnx on two letterboxed photographs."""
    folder = tmp_path_factory.mktemp("detector")
    made = Road(folder=folder, files={"model": ROOT / "models/digits_yolo_640.onnx"})
    made = made.run(import_model, {"model": "model"}, ("model",), {})
    made = made.run(optimize, {"model": "import_model.model"}, ("model", "graph"), {})
    listing = {
        "kind": "folder",
        "examples": [{"": path.name} for path in IMAGES],
        "files": [{"name": path.name, "digest": hashlib.sha256(path.read_bytes()).hexdigest()} for path in IMAGES],
    }
    (folder / "listing").write_text(json.dumps(listing), encoding="utf-8")
    out = {"samples": folder / "samples", "archive": folder / "archive"}
    inputs = {"listing": (folder / "listing",), "files": tuple(IMAGES), "graph": (made.files["optimize.graph"],)}
    samples.run(Job(params={"preset": PRESETS["yolo_640"].expanded(), "count": 2}, inputs=inputs, outputs=out))
    made = Road(folder=folder, files={**made.files, **out})
    both = {"model": "optimize.model", "graph": "optimize.graph"}
    made = made.run(observe, {**both, "samples": "samples"}, ("statistics",), {})
    params = {"lane": "a8w8", "image_inputs": {"range": [0.0, 1.0], "channels": 3, "layout": "NCHW"}}
    return made.run(calibrate, {**both, "statistics": "observe.statistics"}, ("model", "parameters", "record"), params)


def test_statistics_are_the_same_bytes_for_any_thread_count(road: Road, tmp_path: Path) -> None:
    inputs = {"model": "optimize.model", "graph": "optimize.graph", "samples": "samples"}
    paths = {port: (road.files[source],) for port, source in inputs.items()}
    for threads in (2, 3):  # the road's were made with one
        made = tmp_path / f"{threads}.npz"
        observe.run(Job(params={}, inputs=paths, outputs={"statistics": made}, threads=threads))
        assert made.read_bytes() == road.files["observe.statistics"].read_bytes()


def test_nv12_gives_the_integers_of_the_decoded_float_input(road: Road, tmp_path: Path) -> None:
    """Board: nv12 bytes. Witness: the same bytes decoded by numpy, through the linear step, into the float input."""
    board = compiled(quantised(road.branch(tmp_path / "nv12"), {"runtime_input": {"images": NV12}}), {"platform": J6P})
    plain = compiled(quantised(road.branch(tmp_path / "plain"), {}), {"platform": J6P})
    spec = RuntimeInput.from_facts("images", NV12)
    with SampleSet.open(road.files["samples"]) as opened:
        tensors = encode(spec, opened.read_stored(0)["images"])
        real = opened.inputs["images"].prepare(decode(spec, tensors))
    runs = [Executor(Package.open(made.files["compile.deployable"]), threads=2) for made in (board, plain)]
    buffers = runs[0].run_buffers(runs[0].pack_inputs(tensors))
    got, want = runs[0].unpack_outputs(buffers), runs[1].run({"images": real})
    assert set(got) == set(want)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_bundle_runs_on_a_photograph(road: Road, tmp_path: Path) -> None:
    """verify, package, verify_bundle, and an image file fed to the bundle, which knows its letterbox."""
    made = compiled(quantised(road.branch(tmp_path), {"runtime_input": {"images": NV12}}), {"platform": J6P})
    made = verified(made, {"count": 2})
    made = made.run(
        package,
        {"deployable": "compile.deployable", "contract": "compile.contract", "archive": "archive",
         "verified": "verify.record", "outputs": "verify.outputs"},
        ("bundle", "deployable", "contract"),
        {},
    )  # fmt: skip
    path = made.files["package.bundle"]
    assert verify_bundle(path, threads=2).runs == 2
    fed = run_files(load_deployable(path), [("", IMAGES[1])], threads=2)
    executor = Executor(Package.open(made.files["compile.deployable"]))
    with SampleSet.open(road.files["samples"]) as opened:
        index = next(index for index in range(2) if opened.sources(index)["images"].name == IMAGES[1].name)
        want = executor.restore(executor.run(executor.encode(opened.read_stored(index))))
    for name, value in want.items():
        np.testing.assert_array_equal(fed[name], value)
