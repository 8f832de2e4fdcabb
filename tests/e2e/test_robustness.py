"""What must never be lost: kills, two builds at once, a damaged or unwritable store, another environment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workspace import Workspace


def test_killed_at_random_moments_it_goes_on_without_a_flag(built_once: Workspace, tmp_path: Path) -> None:
    reference = built_once.bundle()
    chance = random.Random(20)
    workspace = Workspace.create(tmp_path / "project")
    kills = 0
    done: set[str] = set()
    while kills < 20:
        process = subprocess.Popen(
            workspace.command("build", "small", "--json"),
            cwd=workspace.root,
            env=workspace.env(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(chance.uniform(0.05, 1.0))
        finished = process.poll() is not None
        if not finished:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        records = {path.name for path in (workspace.root / ".npubake" / "store" / "ac").rglob("*.json")}
        assert done <= records, "a finished stage was lost"
        done = records
        if finished:  # nothing is left to be killed at: begin anew
            assert workspace.bundle() == reference
            shutil.rmtree(workspace.root / ".npubake")
            shutil.rmtree(workspace.root / "build")
            done = set()
    workspace.build()
    assert workspace.bundle() == reference


@pytest.mark.untuned
def test_killed_at_every_write_point_of_a_real_build(built: Workspace, tmp_path: Path) -> None:
    """Three stages have to run; each name of a write point is killed at where it is last reached."""
    built.edit("platform: generic", "platform: generic\nplatform_options: {generic: {sdk: {bsp: '2.0'}}}")
    whole = built.copy(tmp_path / "whole")
    trace = tmp_path / "trace"
    stages = whole.build("small", NPUBAKE_FAILPOINT_TRACE=str(trace)).ran()
    assert stages == ["compile", "package", "verify"]
    names = trace.read_text().split()
    written = ("blob", "record", "publish", "last", "manifest", "settled")
    assert set(names) >= {f"{what}.named" for what in written}
    for name in dict.fromkeys(names):
        victim = built.copy(tmp_path / name)
        before = _records(victim)
        point, traced = f"{name}:{names.count(name)}", str(tmp_path / f"{name}.trace")
        killed = victim.run("build", "small", NPUBAKE_FAILPOINT=point, NPUBAKE_FAILPOINT_TRACE=traced)
        assert killed.code == -signal.SIGKILL, name
        finished = _records(victim) - before
        assert len(victim.build().ran()) == len(stages) - len(finished), name
        assert victim.bundle() == whole.bundle(), name
        assert _reproducible(victim) == _reproducible(whole), name
        assert victim.build().ran() == [], name
        assert not list((victim.root / "build").rglob(".*.part")), name


def _records(workspace: Workspace) -> set[str]:
    return {path.name for path in (workspace.root / ".npubake" / "store" / "ac").rglob("*.json")}


def _reproducible(workspace: Workspace) -> Any:
    return json.loads((workspace.root / "build" / "small" / "manifest.json").read_text())["reproducible"]


@pytest.mark.untuned
def test_two_builds_at_once_share_the_work(fresh: Workspace) -> None:
    processes = [
        subprocess.Popen(
            fresh.command("build", "small", "--json"),
            cwd=fresh.root,
            env=fresh.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    finished = [(process, *process.communicate(timeout=300)) for process in processes]
    assert [process.returncode for process, _, _ in finished] == [0, 0], [err for _, _, err in finished]
    ran = [task["key"] for _, out, _ in finished for task in json.loads(out)["tasks"] if task["outcome"] == "ran"]
    assert len(ran) == len(set(ran)), "a task ran twice"


@pytest.mark.untuned
def test_a_damaged_blob_is_never_served(built: Workspace) -> None:
    reference = built.bundle()
    blobs = sorted((built.root / ".npubake" / "store" / "cas").rglob("*"), key=lambda path: path.name)
    for blob in (path for path in blobs if path.is_file()):
        blob.chmod(0o644)
        content = bytearray(blob.read_bytes())
        content[len(content) // 2] ^= 0xFF
        blob.write_bytes(bytes(content))
    shutil.rmtree(built.root / "build")
    built.build()
    assert built.bundle() == reference


def test_a_store_that_is_a_file_is_a_clear_error(fresh: Workspace, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("not a folder")
    result = fresh.run("build", "small", NPUBAKE_STORE=str(place))
    assert result.code == 2
    assert "Traceback" not in result.err
    assert str(place) in result.err


@pytest.mark.untuned
def test_a_full_disk_is_a_clear_error_and_loses_nothing(built: Workspace) -> None:
    reference = built.bundle()
    built.edit("samples: 16", "samples: 15")
    limited = ["bash", "-c", 'ulimit -f 24; exec "$@"', "bash", *built.command("build", "small")]
    result = subprocess.run(limited, cwd=built.root, env=built.env(), capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert built.bundle() == reference
    built.edit("samples: 15", "samples: 16")
    assert built.build().ran() == []


def test_the_same_bytes_in_another_environment(built_once: Workspace, tmp_path: Path) -> None:
    other = Workspace.create(tmp_path / "other" / "folder é")
    other.environment = {"PYTHONHASHSEED": "1234", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}
    old = os.umask(0o077)
    try:
        other.build("small", "--threads", "1")
    finally:
        os.umask(old)
    assert other.bundle() == built_once.bundle()
    names = sorted(path.name for path in (built_once.root / "build" / "small").iterdir())
    for name in names:
        if name.endswith(".onnx"):
            mine, theirs = (w.root / "build" / "small" / name for w in (built_once, other))
            assert mine.read_bytes() == theirs.read_bytes(), name
    assert _reproducible(other) == _reproducible(built_once)


@pytest.mark.untuned
def test_a_failing_gate_leaves_the_last_good_bundle(built: Workspace) -> None:
    reference = built.bundle()
    built.edit("sqnr_db: 15", "sqnr_db: 90")
    built.edit("samples: 16", "samples: 12")
    result = built.run("build", "small", "--json")
    assert result.code == 1
    assert "quantized" in result.err
    assert "the last good bundle stays in place: build/small/small.bundle" in result.err
    assert built.bundle() == reference
