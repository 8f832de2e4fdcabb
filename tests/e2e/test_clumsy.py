"""A clumsy user: odd options, closed pipes, odd terminals; each refusal has a hint and is one JSON object."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npubake.cli.artifacts import described
from tests.e2e.workspace import Workspace


@pytest.mark.parametrize(
    "words",
    [
        ("build", "--nope"),
        ("nope",),
        (),
        ("build", "small", "-n", "x"),
        ("build", "small", "-n", "0"),
        ("build", "small", "--threads", "-1"),
        ("build", "small", "--threads", "99999999999"),
        ("build", "small", "--locked", "--update-lock"),
        ("build", "small", "--toolchain", ""),
        ("build", "small", "--until", ""),
        ("explain", "small", "--stage", "calibrat"),
        ("plan", "small", "--graph", "dot"),
        ("doctor", "extra"),
        ("cache",),
        ("cache", "gc", "--max-age", "nan"),
        ("cache", "gc", "--max-age", "-1"),
        ("cache", "gc", "--max-size", "-1"),
        ("run", "small", "=data/validation/0105.png"),
        ("run", "small", "image="),
        ("run", "small", ""),
        ("run", "small", "data/validation/0105.png", "data/validation/0106.png"),
        ("run", "small", "data/validation/0105.png", "--out", "/nowhere/out.npz"),
        ("run", "small", "data/validation/0105.png", "--out", "recipes"),
        ("run", "small", "data/validation/0105.png", "--draw", "x.png"),
        ("run", "small", "data/validation/0105.png", "--example", "-1"),
        ("new", "nowhere.onnx"),
        ("new", "models/digits_mobilenet.onnx", "--name", "n", "--platform", "j6q"),
        ("-C", "nowhere", "build", "small"),
        ("-C", "recipes/small.yaml", "plan"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_json_object_with_hints_and_code_2(built: Workspace, words: tuple[str, ...]) -> None:
    result = built.run(*words, "--json")
    assert result.code == 2
    assert "Traceback" not in result.err
    error = result.json["error"]
    assert error["exit_code"] == 2
    assert all(fault["what"] and fault["hint"] for fault in error["faults"]), error["faults"]
    assert not (built.root / "recipes" / "n.yaml").exists()


def test_a_size_larger_than_any_disk_is_a_size(built: Workspace) -> None:
    assert built.run("cache", "gc", "--max-size", "9" * 400, "--dry-run", "--json").json["keys"] == []


def test_a_folder_that_was_deleted_under_the_shell(built: Workspace) -> None:
    script = "mkdir gone && cd gone && rmdir ../gone && exec " + " ".join(built.command("build", "--json"))
    done = subprocess.run(["sh", "-c", script], cwd=built.root, env=built.env(), capture_output=True, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["faults"][0]["what"] == "no such folder"


def test_paths_are_relative_to_the_folder_of_the_option(built: Workspace, tmp_path: Path) -> None:
    words = ("-C", str(built.root / "data"), "run", "small", "validation/0105.png", "--json")
    assert built.run(*words, cwd=tmp_path).json["outputs"]["logits"]["shape"] == [1, 10]


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_names_that_the_terminal_cannot_show(built: Workspace, encoding: str) -> None:
    built.edit("version: 1\n", "version: 1\ndescription: 漢字 → é\n")
    result = built.run("list", "recipes", PYTHONIOENCODING=f"{encoding}:strict")
    assert result.code == 0, result.err


def test_without_a_home_a_locale_or_a_width(built: Workspace) -> None:
    for words in (("build", "small"), ("plan", "small"), ("status",), ("doctor",), ("list",), ("build", "--help")):
        result = built.run(*words, HOME="/nowhere", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", COLUMNS="1")
        assert result.code == 0, result.err
        assert "Traceback" not in result.err


def test_a_reader_that_stops_early_is_no_success(built: Workspace) -> None:
    script = " ".join(built.command("list")) + "; echo $? >code"
    process = subprocess.Popen(["sh", "-c", script], cwd=built.root, env=built.env(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=60)
    assert (built.root / "code").read_text().strip() == "141"


@pytest.mark.untuned
def test_an_interrupt_keeps_what_is_finished_and_the_last_bundle(built: Workspace) -> None:
    bundle = built.bundle()
    built.edit("percentile: 0.9999", "percentile: 0.9998")
    process = subprocess.Popen(
        built.command("build", "small", "--json"),
        cwd=built.root,
        env=built.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"calibrate") and b" ran " in line:
            os.killpg(process.pid, signal.SIGINT)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert json.loads(out)["error"]["exit_code"] == 130
    assert b"Traceback" not in err
    assert built.bundle() == bundle
    assert "calibrate" not in built.build().ran()


@pytest.mark.untuned
def test_the_bundle_of_another_build_is_not_this_target(built: Workspace, tmp_path: Path) -> None:
    shutil.copytree(built.root / "build" / "small", tmp_path / "kept")
    built.edit("percentile: 0.9999", "percentile: 0.9998")
    built.build()
    shutil.copy(tmp_path / "kept" / "small.bundle", built.root / "build" / "small" / "small.bundle")
    result = built.run("verify", "small", "--json")
    assert result.code == 1
    assert "manifest" in result.json["error"]["faults"][0]["hint"]
    assert built.run("verify", str(tmp_path / "kept" / "small.bundle")).code == 0
    (built.root / "build" / "small" / "manifest.json").write_text("{")
    assert built.run("verify", "small", "--json").code == 1
    status = built.run("status", "small", "--json")
    assert status.json["targets"]["small"]["current"] is False


def test_gc_wants_to_know_what_to_keep(built: Workspace) -> None:
    note = next((built.root / ".npubake" / "last").glob("*.json"))
    note.write_text("[]")
    result = built.run("cache", "gc", "--json")
    assert result.code == 1
    assert result.json["error"]["faults"][0]["where"] == str(note)


def test_completion_scripts_are_read_by_the_shell(built: Workspace) -> None:
    script = built.run("completion", "bash").out + "\ncomplete -p npubake\n"
    done = subprocess.run(["bash", "-eu"], input=script, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "npubake" in done.stdout


@pytest.mark.untuned
def test_progress_is_live_on_a_terminal_and_plain_in_a_pipe(built: Workspace) -> None:
    import pty

    built.edit("samples: 16", "samples: 12")
    plain = built.run("build", "small", "--until", "samples")
    assert "\x1b" not in plain.err
    assert "samples" in plain.err
    parent, child = pty.openpty()
    process = subprocess.Popen(
        built.command("build", "small"),
        cwd=built.root,
        env=built.env(TERM="xterm"),
        stdout=subprocess.PIPE,
        stderr=child,
    )
    os.close(child)
    shown = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            shown += os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
    out, _ = process.communicate(timeout=60)
    os.close(parent)
    assert process.returncode == 0
    assert b"\x1b" in shown
    assert b"\x1b" not in out


def nothing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("spoil", [nothing, folder, pipe, empty, truncated])
def test_a_model_that_is_none_is_told_at_its_line_of_the_recipe(
    fresh: Workspace, spoil: Callable[[Path], None]
) -> None:
    spoil(fresh.root / "models" / "digits_mobilenet.onnx")
    for command in ("check", "build"):
        result = fresh.run(command, "small", "--json")
        assert result.code == 2
        faults = result.json["faults"] if "faults" in result.json else result.json["error"]["faults"]
        (fault,) = faults
        assert (fault["where"], fault["path"]) == (f"{fresh.recipe}:3:9", "$.model.path")
        assert fault["hint"]


def test_outputs_that_are_not_finite_are_json_all_the_same() -> None:
    values = described(np.array([np.nan, np.inf, 1.0]))
    assert json.loads(json.dumps(values, allow_nan=False))["values"] == ["nan", "inf", 1.0]
    assert described(np.zeros((0, 2)))["min"] is None


@pytest.mark.parametrize("label", [-1, 10, 10**30])
def test_a_label_that_is_no_class_is_refused(built: Workspace, label: int) -> None:
    path = built.root / "data" / "validation" / "labels.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "0100.png": label}))
    result = built.run("build", "small", "--json")
    assert result.code == 2
    assert "labels" in result.err


def test_a_lock_nested_beyond_reason_and_a_folder_for_a_manifest(built: Workspace) -> None:
    manifest = built.root / "build" / "small" / "manifest.json"
    manifest.unlink()
    manifest.mkdir()
    result = built.run("build", "small", "--json")
    assert result.code == 1
    assert result.json["error"]["faults"][0]["where"] == str(manifest)
    (built.root / "recipes" / "small.lock").write_text("[" * 100_000)
    assert built.run("build", "small", "--json").json["error"]["exit_code"] == 2
