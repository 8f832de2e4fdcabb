"""``npubake export`` of targets of the qualcomm toolchain, of every lane, where nothing of that toolchain is installed.

The targets take the SDK's road and are built with a FAKE SDK as far as ``adapt``; then the SDK is gone.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.e2e.qairt_site import Site
from tests.toolchains.qualcomm.qairt.fake_sdk import make_sdk

LANES = ("a8w8", "a16w8", "fp16")
FORMATS = ("encodings", "qdq", "input-list", "qairt-script")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A target that takes a gray picture as bytes. Never changed: take a copy."""
    site = Site.create(tmp_path_factory.mktemp("export") / "site")
    site.workspace.edit("calibration:\n  data", "runtime_input:\n  image: {type: gray}\ncalibration:\n  data")
    # Without it the calibration samples, which are exported, are what is measured.
    site.workspace.edit("metric:\n  name: top1\n  data: ../data/validation\n  max_drop: 0.1\n", "")
    return site


@pytest.fixture(scope="module", params=LANES)
def lane(request: pytest.FixtureRequest, plain: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Built in one lane as far as its gate before the compile; the SDK's folder is nowhere now."""
    site = plain.copy(tmp_path_factory.mktemp(str(request.param)))
    site.workspace.edit("quant_config:\n", f"quant_config:\n  lane: {request.param}\n")
    if request.param == "fp16":
        site.workspace.edit("  quantized: {cosine: 0.98, sqnr_db: 15}", "  converted: {cosine: 0.98, sqnr_db: 15}")
    for until in ("samples", "adapt", "measure quantized" if request.param != "fp16" else "adapt"):
        result = site.run("build", "small", "--until", until, "--json")
        assert result.code == 0, result.err
    return site


def export(site: Site, kind: str, folder: Path, *words: str) -> Any:
    return site.run("export", "small", "--format", kind, "--out", str(folder), "--json", *words, QAIRT_SDK_ROOT="")


def name_of(site: Site) -> str:
    text = site.workspace.recipe.read_text()
    return next(lane for lane in LANES if f"lane: {lane}" in text)


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_of_the_toolchain_has_to_be_there(lane: Site, kind: str, tmp_path: Path) -> None:
    """Every format of every lane; a lane that quantises nothing has no encodings and no QDQ model, and says so."""
    result = export(lane, kind, tmp_path / "out")
    if name_of(lane) == "fp16" and kind in ("encodings", "qdq"):
        assert result.code == 2
        assert "quantises nothing: lane fp16" in result.json["error"]["faults"][0]["what"]
        assert not (tmp_path / "out").exists()
        return
    assert result.code == 0, result.err
    for entry in result.json["files"]:
        assert (tmp_path / "out" / entry["path"]).stat().st_size == entry["bytes"]


def test_the_script_runs_in_every_lane(lane: Site, tmp_path: Path) -> None:
    """``bash -n`` reads it; with a fake SDK it ends well, and the fake's run of the float model behind the picture's
    nodes gives the labels that the pictures have.
    """
    folder = tmp_path / "by hand"
    assert export(lane, "qairt-script", folder, "--sdk-version", "2.39.0.250926").code == 0
    script = str(folder / "run_qairt.sh")
    assert subprocess.run(["/bin/bash", "-n", script], check=False).returncode == 0
    sdk = make_sdk(tmp_path / "sdk")
    environment = {"QAIRT_SDK_ROOT": str(sdk), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    held = json.loads((folder / "context" / "model_ctx_qnn.bin").read_text())
    assert (held["encodings"] is None) == (name_of(lane) == "fp16")
    made = [np.fromfile(folder / "ran" / f"Result_{at}" / "logits.raw", "<f4") for at in range(16)]
    source = lane.workspace.root / "models" / "digits_mobilenet.onnx"
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    plain = tmp_path / "as the model is fed"
    assert export(lane, "input-list", plain).code == 0
    for at, found in enumerate(made):
        fed = np.fromfile(plain / f"raw/{at:05d}_image.raw", "<f4").reshape(1, 1, 28, 28)
        np.testing.assert_allclose(found, session.run(["logits"], {"image": fed})[0].ravel(), rtol=2e-3, atol=2e-3)


def test_the_qdq_model_gives_the_figures_of_the_build(lane: Site, tmp_path: Path) -> None:
    """It loads in onnxruntime, and its SQNR on the calibration samples is the one that the build measured."""
    if name_of(lane) == "fp16":
        return
    assert export(lane, "qdq", tmp_path).code == 0
    assert export(lane, "input-list", tmp_path).code == 0
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    folder = lane.workspace.root / "build" / "small"
    sessions = [
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for path in (folder / "small_optimized_float_model.onnx", tmp_path / "small_qdq_model.onnx")
    ]
    onnx.checker.check_model(onnx.load(tmp_path / "small_qdq_model.onnx"))
    signal = noise = 0.0
    for line in (tmp_path / "input_list.txt").read_text().splitlines():
        fed = {"image": np.fromfile(tmp_path / line, "<f4").reshape(1, 1, 28, 28)}
        wanted, found = (np.asarray(session.run(["logits"], fed)[0], np.float64) for session in sessions)
        signal, noise = signal + float(np.square(wanted).sum()), noise + float(np.square(wanted - found).sum())
    figures = json.loads((folder / "figures" / "quantized.json").read_text())
    assert 10 * np.log10(signal / noise) == pytest.approx(figures["outputs"]["logits"]["sqnr_db"], abs=0.05)


def test_what_is_not_built_is_said_with_the_stage(plain: Site, tmp_path: Path) -> None:
    result = export(plain.copy(tmp_path), "qdq", tmp_path / "out")
    assert result.code == 2
    assert "npubake build small --until adapt" in result.json["error"]["faults"][0]["hint"]


def test_a_pair_has_everything_but_a_script(plain: Site, tmp_path: Path) -> None:
    """The configuration of the SDK names one SoC; a pair is on the wheel's road, which is not needed either."""
    site = plain.copy(tmp_path)
    site.workspace.edit("platform: qcs9075", "platforms: [qcs9075+qcs8275]")
    site.workspace.edit("road: sdk, ", "")
    result = export(site, "qairt-script", tmp_path / "out")
    assert result.code == 2
    assert "qcs9075+qcs8275 is several SoCs" in result.json["error"]["faults"][0]["what"]
    assert "is not built" in export(site, "encodings", tmp_path / "out").json["error"]["faults"][0]["what"]


def test_encodings_need_no_road_and_no_package(lane: Site, tmp_path: Path) -> None:
    """The same target on the road of the wheel, of which nothing is installed where the SDK is used."""
    if name_of(lane) == "fp16":
        return
    site = lane.copy(tmp_path)
    assert export(site, "encodings", tmp_path / "sdk").code == 0
    site.workspace.edit("road: sdk, ", "")
    assert export(site, "encodings", tmp_path / "wheel").code == 0
    for name in ("small.encodings", "small_float_model.onnx"):
        assert (tmp_path / "wheel" / name).read_bytes() == (tmp_path / "sdk" / name).read_bytes()
