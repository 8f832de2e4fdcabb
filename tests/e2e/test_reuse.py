"""What an earlier build made is saved, loaded and used again; runtime_options reach the manifest alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.untuned
CHOICE = "  calibration: {method: percentile, percentile: 0.9999, asymmetric: true}\n"
DATA = "  data: ../data/calibration\n  samples: 16\n"


def folder(workspace: Workspace) -> Path:
    return workspace.root / "build" / "small"


def manifest(workspace: Workspace) -> dict[str, Any]:
    return dict(json.loads((folder(workspace) / "manifest.json").read_text())["reproducible"])


def saved(workspace: Workspace) -> tuple[Path, Path]:
    """Build with save_sample; copies of the sample set and the parameters."""
    workspace.edit(CHOICE, CHOICE + "  save_sample: true\n")
    workspace.build()
    made = manifest(workspace)
    digests = {Path(artifact["path"]).name: artifact["digest"] for artifact in made["artifacts"]}
    kept = []
    for name in ("calibration_samples.npz", "small_parameters.json"):
        data = (folder(workspace) / name).read_bytes()
        assert digests[name] == hashlib.sha256(data).hexdigest()
        kept.append(workspace.root / name)
        kept[-1].write_bytes(data)
    assert "calibration_statistics.npz" in digests
    return kept[0], kept[1]


def test_loaded_samples_and_scales_give_the_same_model(built: Workspace) -> None:
    samples, scales = saved(built)
    before = {name: (folder(built) / name).read_bytes() for name in ("small_quantized_model.onnx",)}
    digest = hashlib.sha256(scales.read_bytes()).hexdigest()
    built.edit("  save_sample: true\n", f"  load: {{samples: ../{samples.name}, scales: {digest}}}\n")
    built.edit(CHOICE, "")
    built.edit("calibration:\n" + DATA, "")
    done = built.run("build", "small", "--json")
    assert done.code == 0, done.err
    assert not {"observe"} & set(done.ran())  # the same bytes: nothing is observed anew
    assert {name: (folder(built) / name).read_bytes() for name in before} == before
    record = json.loads((folder(built) / "calibrate.json").read_text())["loaded_scales"]
    assert record["moved"] == []
    assert record["tensors"] > 10
    assert manifest(built)["calibration"]["samples"] == 16
    assert not (folder(built) / "calibration_samples.npz").exists()


def test_scales_off_the_grid_are_moved_visibly(built: Workspace) -> None:
    _, scales = saved(built)
    data = json.loads(scales.read_text())
    name = next(iter(data["tensors"]))
    data["tensors"][name]["scale"] *= 1.001
    dropped = list(data["tensors"])[-1]
    del data["tensors"][dropped]
    scales.write_text(json.dumps(data))
    built.edit("  save_sample: true\n", "  load: {scales: ../small_parameters.json}\n")
    built.edit(CHOICE, "")
    refused = built.run("build", "small")
    assert (refused.code != 0, repr(dropped) in refused.err, "small.yaml:" in refused.err) == (True, True, True)
    built.edit("small_parameters.json}", "small_parameters.json, missing: calibrate}")
    done = built.run("build", "small")
    assert done.code == 0, done.err
    assert f"loaded scales: {name}:" in done.err
    moved = json.loads((folder(built) / "calibrate.json").read_text())["loaded_scales"]["moved"]
    first = next(entry for entry in moved if entry["name"] == name)
    assert first["before"]["scale"] != first["after"]["scale"]


def test_files_that_are_not_what_was_meant_are_refused_at_their_line(built: Workspace) -> None:
    samples, _ = saved(built)
    other = "0" * 64
    built.edit("  save_sample: true\n", f"  load: {{samples: {{path: ../{samples.name}, digest: '{other}'}}}}\n")
    built.edit(DATA, "  purpose: release\n")
    refused = built.run("check")
    assert (refused.code, "another one is stated" in refused.err, "small.yaml:" in refused.err) == (2, True, True)
    built.edit(f"{{path: ../{samples.name}, digest: '{other}'}}", f"'{other}'")
    refused = built.run("check")
    assert (refused.code, f"the store holds nothing under {other}" in refused.err) == (2, True)
    built.edit(f"'{other}'", "../data/nothing.npz")
    assert "there is no such file" in built.run("check").err
    np.savez(built.root / "data" / "nothing.npz", allow_pickle=False, x=np.zeros(3))
    assert "no sample set" in built.run("check").err


def test_a_sample_set_of_another_preset_is_refused(built: Workspace) -> None:
    saved(built)
    built.edit("  save_sample: true\n", "  load: {samples: ../calibration_samples.npz}\n")
    built.edit("calibration:\n" + DATA, "")
    built.edit("scale: {divide_by: 255}", "scale: {divide_by: 255}\n  mean: [0.5]\n  mean_domain: 0-1")
    refused = built.run("check")
    assert (refused.code, "another preset" in refused.err) == (2, True)


def test_runtime_options_are_recorded_word_for_word_and_run_nothing(built: Workspace) -> None:
    options = {"queue": 3, "note": ["a", {"b": 1.5}], "type": "x"}
    built.recipe.write_text(built.recipe.read_text() + f"runtime_options: {json.dumps(options)}\n")
    done = built.run("build", "small", "--json")
    assert (done.code, done.ran()) == (0, [])
    assert manifest(built)["runtime_options"] == options
