"""What ``run --out`` writes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from npubake import released
from npubake.cli import main
from npubake.cli.artifacts import save_outputs


def test_outputs_of_any_name_are_written_and_read_back(tmp_path: Path) -> None:
    outputs = {name: np.arange(3, dtype=np.float32) + index for index, name in enumerate(("file", "a/b", "output 0"))}
    save_outputs(tmp_path / "out.npz", outputs)
    with np.load(tmp_path / "out.npz") as read:
        assert {name: read[name].tolist() for name in read.files} == {k: v.tolist() for k, v in outputs.items()}


@pytest.mark.parametrize(("named", "hint"), [("small", "small_j6e, small_j6p"), ("other", "npubake build other")])
def test_what_is_not_built_leaves_a_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str, hint: str
) -> None:
    (tmp_path / "recipes").mkdir()
    for target in ("small_j6e", "small_j6p"):
        (tmp_path / "build" / target).mkdir(parents=True)
        (tmp_path / "build" / target / f"{target}.bundle").touch()
    assert main(["-C", str(tmp_path), "verify", named]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("command", [("verify",), ("run",)])
def test_a_part_of_a_bundle_is_not_called_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    part = tmp_path / "model_ctx.onnx"
    part.write_bytes(b"no archive")
    assert main([*command, str(part), *(["x.npy"] if command == ("run",) else [])]) == 2
    told = capsys.readouterr().err
    assert "neither a bundle nor a package" in told
    assert "Name the bundle" in told


def test_a_folder_with_one_bundle_stands_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.bundle").write_bytes(b"cut off")
    assert main(["verify", str(tmp_path)]) == 1
    assert "small.bundle: it is no intact archive" in capsys.readouterr().err


def test_a_copied_folder_is_still_its_manifests(tmp_path: Path) -> None:
    (tmp_path / "gates").mkdir()
    (tmp_path / "gates" / "x.json").write_bytes(b"[]")
    entry = {"path": "build/small/gates/x.json", "digest": hashlib.sha256(b"[]").hexdigest()}
    told = {"reproducible": {"artifacts": [entry], "gates": []}, "circumstances": {"finished": "now"}}
    (tmp_path / "manifest.json").write_text(json.dumps(told), encoding="utf-8")
    last = released.find(tmp_path)
    assert last is not None
    assert last.astray == ()
