"""What is done and what runs: the table of the design, a row a test, counted by the stages that really ran."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.workspace import Workspace, write_digits

MEASURES = {"measure", "measure_product", "gate"}
FROM_CALIBRATE = {"calibrate", "tune", "ptq", "quantize", "compile", "verify", "package"}
BEFORE_CALIBRATE = {"import", "optimize", "samples", "observe", "measure_inputs"}


def test_build_again_runs_nothing_and_imports_nothing_heavy(built: Workspace) -> None:
    built.build()
    again = built.build(PYTHONPROFILEIMPORTTIME="1")
    assert again.ran() == []
    imported = {line.rpartition("|")[2].strip() for line in again.err.splitlines() if line.startswith("import time:")}
    assert imported & {"numpy", "onnx", "onnxruntime", "networkx", "yaml", "jsonschema", "numba"} == set()


def test_a_comment_or_white_space_recomputes_nothing(built: Workspace) -> None:
    built.recipe.write_text("# a comment\n\n" + built.recipe.read_text().replace("samples: 16", "samples:   16"))
    assert built.build().ran() == []


def test_the_recipes_name_recomputes_nothing(built: Workspace) -> None:
    built.recipe.rename(built.root / "recipes" / "renamed.yaml")
    result = built.build("renamed")
    assert result.ran() == []
    assert (built.root / "build" / "renamed" / "manifest.json").exists()
    assert built.bundle("renamed") == built.bundle("small")


def test_a_gates_threshold_runs_only_the_verdict(built: Workspace) -> None:
    built.edit("cosine: 0.98", "cosine: 0.97")
    assert built.build().ran() == ["gate"]


def test_one_layer_override_runs_check_and_from_calibrate_on(built: Workspace) -> None:
    built.edit("op_types: [GlobalAveragePool]", "op_types: [Gemm]")
    planned = {task["stage"] for task in built.run("plan", "small", "--json").json["tasks"] if task["outcome"] == "run"}
    assert planned == {"check", "calibrate"}
    explained = built.run("explain", "small")
    assert "GlobalAveragePool" in explained.out
    assert "Gemm" in explained.out
    ran = set(built.build().ran())
    assert {"check", *FROM_CALIBRATE} <= ran <= {"check", *FROM_CALIBRATE, *MEASURES}


@pytest.mark.untuned
def test_setting_the_override_back_runs_nothing(built: Workspace) -> None:
    built.edit("op_types: [GlobalAveragePool]", "op_types: [Gemm]")
    built.build()
    built.edit("op_types: [Gemm]", "op_types: [GlobalAveragePool]")
    assert built.build().ran() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("method: percentile, percentile: 0.9999", "method: minmax"), ("quant_config:", "quant_config:\n  lane: a16w8")],
    ids=["method", "lane"],
)
def test_method_and_lane_never_observe_again(built: Workspace, old: str, new: str) -> None:
    built.edit(old, new)
    ran = set(built.build().ran())
    assert "calibrate" in ran
    assert ran & BEFORE_CALIBRATE == set()


def test_a_new_validation_image_runs_checks_and_measures_only(built: Workspace) -> None:
    write_digits(built.root / "more", 300, 1)
    shutil.move(built.root / "more" / "0300.png", built.root / "data" / "validation")
    built.edit('"0139.png": ', '"0300.png": 1, "0139.png": ', built.root / "data" / "validation" / "labels.json")
    ran = set(built.build().ran())
    assert ran <= {"check", "measure_inputs", *MEASURES}
    assert {"measure_inputs", "measure", "measure_product"} <= ran


@pytest.mark.untuned
def test_all_platforms_share_the_float_half(built: Workspace) -> None:
    built.edit("platform: generic", "platforms: [j6e, j6m, j6b, j6h, j6p, s6p]")
    ran = built.build().ran()
    assert not set(ran) & {"import", "optimize", "samples", "observe"}  # the single target had made them
    fresh_store = str(built.root.parent / "empty-store")
    ran = built.build(NPUBAKE_STORE=fresh_store).ran()
    assert [ran.count(stage) for stage in ("import", "optimize", "samples", "observe")] == [1, 1, 1, 1]
    assert ran.count("compile") == 6
    assert ran.count("calibrate") == 2  # one for each starting lane


@pytest.mark.untuned
def test_a_second_recipe_on_the_same_model_and_data_shares_them(built: Workspace) -> None:
    text = built.recipe.read_text().replace("percentile: 0.9999", "percentile: 0.999")
    (built.root / "recipes" / "second.yaml").write_text(text)
    ran = set(built.build("second").ran())
    assert "calibrate" in ran
    assert ran & {"import", "optimize", "samples", "observe", "measure_inputs"} == set()


@pytest.mark.untuned
def test_one_platforms_stride_runs_that_platform_from_its_first_reader(built: Workspace) -> None:
    built.edit("platform: generic", "platforms: [generic, j6e]")
    built.build("small_generic", "small_j6e")
    facts = built.root / "platforms" / "j6e.yaml"
    before = facts.read_text()
    after = before.replace("tensor_unit_bytes: {value: 64", "tensor_unit_bytes: {value: 128")
    if after == before:
        after = before.replace("tensor_unit_bytes:\n  value: 64", "tensor_unit_bytes:\n  value: 128")
    assert after != before
    facts.write_text(after)
    result = built.build("small_generic", "small_j6e")
    touched = [task for task in result.json["tasks"] if task["outcome"] == "ran"]
    assert {target for task in touched for target in task["targets"]} == {"small_j6e"}
    assert {task["stage"] for task in touched} <= {"check", "compile", "verify", "package"}
    assert "compile" in {task["stage"] for task in touched}


def test_touched_and_resaved_files_run_nothing(built: Workspace) -> None:
    for path in sorted((built.root / "data").rglob("*.*")):
        path.write_bytes(path.read_bytes())
    os.utime(built.root / "models" / "digits_mobilenet.onnx")
    os.utime(built.recipe)
    assert built.build().ran() == []


@pytest.mark.untuned
def test_an_image_replaced_in_place_with_equal_size_and_time_is_noticed(built: Workspace) -> None:
    built.build()
    path = sorted((built.root / "data" / "calibration").iterdir())[0]
    stamp = path.stat()
    content = bytearray(path.read_bytes())
    replacement = _same_size_png(bytes(content))
    path.write_bytes(replacement)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    ran = set(built.build().ran())
    assert {"samples", "observe"} <= ran
    assert ran & {"import", "optimize", "measure_inputs"} == set()


def _same_size_png(content: bytes) -> bytes:
    """A PNG of the same length and picture size whose picture is another: stored rows, one pixel changed."""
    import io
    import struct
    import zlib

    import numpy as np
    from PIL import Image

    pixels = np.array(Image.open(io.BytesIO(content)))
    pixels[10:18, 10:18] = 255 - pixels[10:18, 10:18]
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9))
    end = chunk(b"IEND", b"")
    gap = len(content) - len(body) - len(end)
    assert gap >= 12, "the replacement does not fit"
    return body + chunk(b"teXt", b" " * (gap - 12)) + end


def test_deleting_build_restores_files_and_runs_nothing(built: Workspace) -> None:
    before = built.bundle()
    shutil.rmtree(built.root / "build")
    result = built.build()
    assert result.ran() == []
    assert "restored" in result.outcomes()
    assert built.bundle() == before


def test_a_clone_elsewhere_with_the_same_store_runs_nothing(built: Workspace, tmp_path: Path) -> None:
    clone = Workspace.create(tmp_path / "elsewhere" / "clone")
    result = clone.build(NPUBAKE_STORE=str(built.root / ".npubake" / "store"))
    assert result.ran() == []
    assert clone.bundle() == built.bundle()


def test_a_hand_edited_artifact_is_noticed_and_restored(built: Workspace) -> None:
    path = built.root / "build" / "small" / "small_quantized_model.onnx"
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    result = built.build()
    assert result.ran() == []
    assert path.read_bytes() == good
    assert built.run("cache", "fsck").code == 0


@pytest.mark.parametrize(
    ("tool", "users", "first"),
    [
        ("onnxruntime", {"import", "observe", "transform", "tune", "measure", "measure_product", "verify"}, "import"),
        ("pillow", {"samples", "measure_inputs"}, "samples"),
    ],
)
def test_another_version_of_a_tool_runs_from_the_first_stage_that_uses_it(
    built: Workspace, tmp_path: Path, tool: str, users: set[str], first: str
) -> None:
    """The other version computes the same here, so that what reads only its results need not run."""
    facts = tmp_path / "site" / f"{tool}-99.0.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: {tool}\nVersion: 99.0\n")
    known = [path for path in [os.environ.get("PYTHONPATH", "")] if path]
    path = os.pathsep.join([str(tmp_path / "site"), *known])
    built.build()
    planned = built.run("plan", "small", "--json", PYTHONPATH=path).json["tasks"]
    told = next(task for task in planned if task["stage"] == first)
    assert told["outcome"] == "run"
    assert any(tool in reason and "99.0" in reason for reason in told["reasons"])
    result = built.build(PYTHONPATH=path)
    assert set(result.ran()) == users
    assert tool in result.err  # the lock would differ
    assert built.build(PYTHONPATH=path).ran() == []
    manifest = json.loads((built.root / "build" / "small" / "manifest.json").read_text())
    assert "99.0" in manifest["reproducible"]["tools"][tool]
    assert built.build().ran() == []


@pytest.mark.untuned
def test_what_another_platform_left_behind_is_removed(built: Workspace) -> None:
    removed = built.root / "build" / "small" / "small_quantized_removed_model.onnx"
    note = built.root / "build" / "small" / "note.txt"
    note.write_text("a person's own")
    built.edit("platform: generic", "platform: j6e")
    built.build()
    assert removed.exists()
    built.edit("platform: j6e", "platform: generic")
    built.build()
    assert not removed.exists()
    assert note.exists()
