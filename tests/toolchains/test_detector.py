"""The detector on real photographs: nv12 baked in gives the integers of the float input, on board buffers."""

from __future__ import annotations

import hashlib
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npubake.calibration.samples import SampleSet
from npubake.fixedpoint.colour import RuntimeInput
from npubake.layout.runtime_input import decode, encode
from npubake.pipeline.stage import Job
from npubake.recipe.presets import PRESETS
from npubake.stages import calibrate, import_model, observe, optimize, package, samples
from npubake.toolchains import answers
from npubake.toolchains.reference.bundle import verify_bundle
from npubake.toolchains.reference.executor import Executor
from npubake.toolchains.reference.package_file import Package
from npubake.toolchains.reference.running import load_package, run_files
from tests.toolchains.digits import J6P, ROOT, Road, compiled, quantised, verified

NV12: dict[str, Any] = {"type": "nv12", "range": "video"}
BOARD = {"platform": J6P, "preset": PRESETS["yolo_640"].expanded()}
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


@pytest.fixture(scope="module")
def board(road: Road, tmp_path_factory: pytest.TempPathFactory) -> Road:
    """nv12 baked in, for J6P."""
    return compiled(quantised(road.branch(tmp_path_factory.mktemp("nv12")), {"runtime_input": {"images": NV12}}), BOARD)


def test_statistics_are_the_same_bytes_for_any_thread_count(road: Road, tmp_path: Path) -> None:
    inputs = {"model": "optimize.model", "graph": "optimize.graph", "samples": "samples"}
    paths = {port: (road.files[source],) for port, source in inputs.items()}
    for threads in (2, 3):  # the road's were made with one
        made = tmp_path / f"{threads}.npz"
        observe.run(Job(params={}, inputs=paths, outputs={"statistics": made}, threads=threads))
        assert made.read_bytes() == road.files["observe.statistics"].read_bytes()


def test_nv12_gives_the_integers_of_the_decoded_float_input(road: Road, board: Road, tmp_path: Path) -> None:
    """Board: nv12 bytes. Witness: the same bytes decoded by numpy, through the linear step, into the float input."""
    plain = compiled(quantised(road.branch(tmp_path / "plain"), {}), BOARD)
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
    made = compiled(quantised(road.branch(tmp_path), {"runtime_input": {"images": NV12}}), BOARD)
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
    done = run_files(load_package(path), [("", IMAGES[1])], threads=2)
    fed = done.outputs
    executor = Executor(Package.open(made.files["compile.deployable"]))
    with SampleSet.open(road.files["samples"]) as opened:
        index = next(index for index in range(2) if opened.sources(index)["images"].name == IMAGES[1].name)
        want = executor.edges.restore(executor.run(executor.edges.encode(opened.read_stored(index))))
    for name, value in want.items():
        np.testing.assert_array_equal(fed[name], value)


def test_the_example_reads_a_detector_as_npubake_run_does(board: Road) -> None:
    """nv12, letterboxed, in the padded buffers of the contract; without a line of npubake."""
    package = board.files["compile.deployable"]
    want = run_files(load_package(package), [("", IMAGES[0])]).outputs
    got = runpy.run_path(str(ROOT / "examples" / "read_package.py"))["run"](package, IMAGES[0])
    assert set(got) == set(want)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_detections_stand_in_the_pictures_pixels(board: Road, tmp_path: Path) -> None:
    """Against the labels of the picture, in its own pixels; and drawn on the picture, nowhere else."""
    done = run_files(load_package(board.files["compile.deployable"]), [("", IMAGES[0])], threads=2)
    (picture,) = done.fed.pictures.values()
    found = answers.detections(done.outputs, picture)
    labels = json.loads((ROOT / "data/digits/calibration/labels.json").read_text(encoding="utf-8"))
    (image,) = [entry for entry in labels["images"] if entry["file_name"].endswith(IMAGES[0].name)]
    truth = [entry for entry in labels["annotations"] if entry["image_id"] == image["id"]]
    assert found
    assert truth
    slack = 0.03 * max(image["width"], image["height"])
    for wanted in truth:  # two pictures calibrated it: classes may be wrong, places are not
        gaps = [np.abs(np.array(entry.box) - _corners(wanted["bbox"])).max() for entry in found]
        assert min(gaps) < slack, [entry.score for entry in found]
    answers.draw(picture, found, tmp_path / "drawn.png")
    with Image.open(tmp_path / "drawn.png") as drawn:
        changed = (np.asarray(drawn) != picture.pixels).any(axis=2)
    x, y = (round(value) for value in found[0].box[2:])
    assert changed[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3].any()
    assert changed.mean() < 0.5


def _corners(box: list[float]) -> Any:
    """x, y, width, height -> x1, y1, x2, y2."""
    x, y, width, height = box
    return np.array([x, y, x + width, y + height])
