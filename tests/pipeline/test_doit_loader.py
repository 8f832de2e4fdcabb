"""The stock ``doit`` command in a project's root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from npubake.pipeline.project import Project
from tests.pipeline.dummies import ran

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = """
[tool.doit]
loader = "recipes"
backend = "nothing"
planner = "tests.pipeline.planner:planner"
[tool.doit.plugins.loader]
recipes = "npubake.pipeline.doit_loader:RecipeLoader"
[tool.doit.plugins.backend]
nothing = "npubake.pipeline.doit_loader:NothingDB"
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source that nobody edits while the tests run: an edit unsettles a build, and rightly so."""
    copy = tmp_path_factory.mktemp("source")
    for folder in ("src/npubake", "tests/pipeline"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def workspace(project: Project, source: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", f"{source / 'src'}{os.pathsep}{source}")
    (project.root / "pyproject.toml").write_text(PYPROJECT)
    (project.root / "texts").mkdir()
    (project.root / "texts/one.txt").write_text("a b c")
    (project.root / "texts/two.txt").write_text("a b C")
    return project


def doit(project: Project, *arguments: str, code: int = 0) -> str:
    """What the command prints; its errors too."""
    command = [sys.executable, "-m", "doit", *arguments]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not [path.name for path in project.root.iterdir() if path.name.startswith(".doit")]
    return done.stdout + done.stderr


def test_builds_one_then_all_then_nothing(workspace: Project) -> None:
    assert doit(workspace, "build", "recipe=one") == "ran ran ran\n"
    assert ran(workspace) == ["s0", "s1", "s2"]
    assert (workspace.root / "build/one/s2.txt").read_text() == "in abc"
    assert not (workspace.root / "build/two").exists()
    assert sorted(doit(workspace, "build").split()) == ["ran", "restored", "restored", "reused"]
    assert ran(workspace) == ["s2"]
    assert doit(workspace, "build", "recipe=two,one").split() == ["reused"] * 4
    assert doit(workspace, "recipe=one,two", "build").startswith("settled 4 []")
    assert doit(workspace).startswith("settled 4 []")


def test_settled_notices_each_kind_of_change(workspace: Project) -> None:
    doit(workspace, "build")
    assert doit(workspace, "build").startswith("settled")
    root = workspace.root
    (root / "build/one/s1.txt").write_text("in ba")
    assert "restored" in doit(workspace, "build")
    assert doit(workspace, "build").startswith("settled")
    (root / "texts/three.txt").write_text("a")
    assert "settled" not in doit(workspace, "build")
    assert doit(workspace, "build").startswith("settled")
    (root / "in.txt").write_text("IN ")
    assert "ran" in doit(workspace, "build")
    assert (root / "build/one/s1.txt").read_text() == "IN ab"
    assert doit(workspace, "build").startswith("settled")
    (root / "build/three/s0.txt").unlink()
    assert "restored" in doit(workspace, "build")


def test_two_at_a_time(workspace: Project) -> None:
    assert sorted(doit(workspace, "-n", "2", "build", "recipe=one,two").split()) == ["ran"] * 4
    assert sorted(ran(workspace)) == ["s0", "s1", "s2", "s2"]


def test_list_info_and_clean(workspace: Project) -> None:
    listed = doit(workspace, "list")
    assert [line.split()[0] for line in listed.splitlines()] == ["build", "one", "two"]
    names = [line.split()[0] for line in doit(workspace, "list", "--all", "recipe=one").splitlines()]
    stages = [name for name in names if name.startswith("join-")]
    assert len(stages) == 3
    told = doit(workspace, "info", stages[0], code=1)  # doit's answer for "not up to date"
    assert "not built here before" in told or "will be made anew" in told
    doit(workspace, "build", "recipe=one")
    status = doit(workspace, "list", "--all", "--status", "recipe=one")
    assert all(line.startswith("U ") for line in status.splitlines() if "join-" in line)
    doit(workspace, "clean")
    assert list((workspace.root / "build/one").iterdir()) == []
    assert doit(workspace, "build", "recipe=one").split() == ["restored"] * 3


def test_a_target_is_a_task_of_its_own(workspace: Project) -> None:
    assert doit(workspace, "one").split() == ["ran", "ran", "ran", "skipped"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "recpie=one"), "recipe=one"),
        (("list", "recpie=one"), "recipe=one"),
        (("build", "recipe=three"), "no recipe 'three'"),
        (("build", "recipe="), "empty"),
        (("build", "recipe=,"), "empty"),
        (("build", ""), "empty argument"),
        (("",), "empty argument"),
        (("build", "nonsense=1"), "known: recipe=, sleep="),
    ],
)
def test_mistakes_are_refused(workspace: Project, arguments: tuple[str, ...], said: str) -> None:
    assert said in doit(workspace, *arguments, code=2)
    assert ran(workspace) == []


def test_failure_has_its_exit_code(workspace: Project) -> None:
    (workspace.root / "in.txt").unlink()
    printed = doit(workspace, "build", "recipe=one", code=2)
    assert printed.splitlines()[0] == "failed skipped skipped"
    assert "in.txt" in printed


def test_always_execute_restores(workspace: Project) -> None:
    doit(workspace, "build", "recipe=one")
    time.sleep(0.03)
    ran(workspace)
    doit(workspace, "-a", "one", "recipe=one")
    assert ran(workspace) == []


def test_an_interrupt_ends_cleanly(workspace: Project) -> None:
    (workspace.root / "texts/slow.txt").write_text("a b")
    command = [sys.executable, "-m", "doit", "build", "recipe=slow", "sleep=30"]
    process = subprocess.Popen(command, cwd=workspace.root, stderr=subprocess.PIPE, text=True)
    log = workspace.root / "log"
    deadline = time.monotonic() + 30
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "interrupted; finished stages are kept\n"
    assert not list((workspace.store.root / "tmp").glob("*.lock"))
