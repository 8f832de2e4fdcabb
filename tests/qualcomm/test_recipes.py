"""The shipped recipes, built for both SoCs by the real compiler and judged in its emulator; refusals of a whole recipe.

The figures are gates of the recipes; what is asserted here besides is what no gate judges.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workspace import REPOSITORY
from tests.qualcomm import needs_qnn

pytestmark = needs_qnn

PARTS = ("recipes", "platforms", "schemas", "models", "data", "pyproject.toml")
SOCS = {"qcs9075": (77, "v73"), "qcs8275": (82, "v75")}
RECIPES = ("digits_mobilenet", "digits_vit", "yolo_640")
TARGETS = [(recipe, platform) for recipe in RECIPES for platform in SOCS]
# The least SQNR between the binary in the emulator and the QDQ model that it was compiled of: what the gate grants the
# quantiser. Measured on qcs9075: detector boxes 46.8, scores 24.5; ViT 33.3,
# classifier 36.5 dB.
AGREEMENT_DB = 20.0


def npubake(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "npubake", *words]
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone holds, without build and store."""
    root = tmp_path_factory.mktemp("recipes") / "npubake"
    root.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, root / part)
    return root


@pytest.fixture(scope="module")
def built(project: Path) -> dict[str, Any]:
    """All targets in one build: the object that ``build --json`` ends with."""
    names = ",".join(f"{recipe}_{platform}" for recipe, platform in TARGETS)
    done = npubake(project, "build", names, "-k", "-n", "2", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def manifest(project: Path, target: str) -> dict[str, Any]:
    text = (project / "build" / target / "manifest.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["reproducible"]
    return found


@pytest.mark.parametrize(("recipe", "platform"), TARGETS)
def test_every_gate_of_a_shipped_recipe_passes_in_the_emulator(
    project: Path, built: dict[str, Any], recipe: str, platform: str
) -> None:
    summary = built["targets"][f"{recipe}_{platform}"]
    assert {gate["boundary"] for gate in summary["gates"]} >= {"converted", "quantized", "compiled", "product"}
    assert all(gate["passed"] for gate in summary["gates"])
    compiled = manifest(project, f"{recipe}_{platform}")["compiled"]
    model, arch = SOCS[platform]
    assert (compiled["hardware"]["soc_models"], compiled["hardware"]["arch"]) == ([model], [arch])
    assert compiled["build"]["qnn_build_id"].startswith("v2.51.0.")
    assert (compiled["io"], compiled["cpu_nodes"]) == ("quantized", [])
    assert compiled["coverage"]["float"] == []
    agreement = compiled["emulator"]["agreement"]["outputs"]
    assert min(figures["sqnr_db"] for figures in agreement.values()) > AGREEMENT_DB


@pytest.mark.parametrize("platform", SOCS)
def test_the_board_feeds_camera_frames_and_reads_integers(project: Path, built: dict[str, Any], platform: str) -> None:
    assert built["targets"]
    text = (project / "build" / f"yolo_640_{platform}" / "contract.json").read_text(encoding="utf-8")
    contract = json.loads(text)
    fed = {(entry["kind"], entry["plane"], entry["dtype"], *entry["valid_shape"]) for entry in contract["inputs"]}
    assert fed == {("nv12", "y", "uint8", 1, 640, 640, 1), ("nv12", "uv", "uint8", 1, 320, 320, 2)}
    read = {entry["model_output"]: entry["dtype"] for entry in contract["outputs"]}
    assert read == {"boxes": "uint16", "scores": "uint8"}  # boxes in 16 bits: the recipe's override


@pytest.mark.parametrize(("recipe", "platform"), TARGETS)
def test_a_released_bundle_is_verified_and_a_flipped_byte_is_found(
    project: Path, built: dict[str, Any], tmp_path: Path, recipe: str, platform: str
) -> None:
    target = f"{recipe}_{platform}"
    assert built["targets"][target]["manifest"]
    assert npubake(project, "verify", target).returncode == 0
    if recipe != "digits_mobilenet":
        return
    bundle = project / "build" / target / f"{target}.bundle"
    data = bytearray(bundle.read_bytes())
    data[data.index((project / "build" / target / "model_ctx_qnn.bin").read_bytes()) + 60_000] ^= 1
    damaged = tmp_path / "damaged.bundle"
    damaged.write_bytes(data)
    refused = npubake(project, "verify", str(damaged))
    assert refused.returncode == 1
    assert "model_ctx_qnn.bin" in refused.stdout + refused.stderr


def test_one_binary_for_both_socs(project: Path, built: dict[str, Any]) -> None:
    """The emulator opens no such binary: its parts are those of the two targets, which are not compiled again."""
    assert built["targets"]
    done = npubake(project, "build", "digits_mobilenet_pair", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    outcome = json.loads(done.stdout)
    ran = {task["role"] for task in outcome["tasks"] if task["outcome"] == "ran"}
    assert ran == {"check", "probe", "compile", "gate compiled", "gate converted", "verify", "package"}
    assert all(gate["passed"] for gate in outcome["targets"]["digits_mobilenet_pair"]["gates"])
    hardware = manifest(project, "digits_mobilenet_pair")["compiled"]["hardware"]
    assert (hardware["soc_models"], hardware["arch"]) == ([77, 82], ["v73", "v75"])
    verified = npubake(project, "verify", "digits_mobilenet_pair")
    assert (verified.returncode, "no binary for several SoCs" in verified.stdout) == (0, True)
    refused = npubake(project, "run", "digits_mobilenet_pair", "data/digits_cls/validation.npz")
    assert (refused.returncode, "no binary for several SoCs" in refused.stderr) == (2, True)


def test_building_again_runs_nothing(project: Path, built: dict[str, Any]) -> None:
    assert built["targets"]
    again = npubake(project, "plan", "digits_mobilenet_qcs9075", "--check", "--json")
    assert again.returncode == 0, again.stdout[-2000:]


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("platform: qcs6490\nquant_config: {lane: fp16}", "$.quant_config.lane", "no float16"),
        ("platform: qcs6490\nquant_config: {lane: a16w16}", "$.quant_config.lane", "v73"),
        (
            "platform: qcs9075\nquant_config: {lane: w4a16, weights: {granularity: per_tensor, symmetric: false}}",
            "$.quant_config.weights.symmetric",
            "4 bits",
        ),
        (
            "platform: qcs9075\ntoolchain_options: {qualcomm: {cpu_nodes: [nowhere]}}",
            "$.toolchain_options.qualcomm.cpu_nodes[0]",
            "no node 'nowhere'",
        ),
    ],
)
def test_what_check_refuses_stands_at_its_line(project: Path, text: str, path: str, words: str) -> None:
    recipe = project / "recipes" / "refused.yaml"
    recipe.write_text(f"version: 1\nextends: digits_mobilenet.yaml\n{text}\n", encoding="utf-8")
    try:
        done = npubake(project, "check", "refused", "--json")
    finally:
        recipe.unlink()
    assert done.returncode == 2
    (fault,) = [fault for fault in json.loads(done.stdout)["faults"] if fault["path"] == path]
    assert words in fault["what"]
    assert fault["where"].startswith(f"{recipe}:")
