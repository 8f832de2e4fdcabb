"""The quick answer that nothing is to be done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npubake.pipeline import settled
from npubake.pipeline.graph import plan
from npubake.pipeline.project import Project
from npubake.pipeline.scheduler import execute
from tests.pipeline import dummies
from tests.pipeline.conftest import again
from tests.pipeline.dummies import chain, of, task

ROOT = Path(__file__).resolve().parents[2]
REQUEST = {"targets": ["target"]}


@pytest.fixture(autouse=True)
def quiet_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """npubake's own source stays as it is, whoever edits it meanwhile."""
    monkeypatch.setattr(settled, "_package", lambda: ["the source"])


def build(project: Project, *, meanwhile: Callable[[], object] = lambda: None) -> bool:
    """Build the chain and settle; ``meanwhile`` happens after the plan was made."""
    project = again(project)
    seen = settled.Seen()
    seen.add(project.root / "recipe")
    seen.add(project.root / "data")
    tasks = plan([*chain(project.root), task(dummies.HEAVY)])
    record = execute(project, tasks)
    meanwhile()
    return settled.write(project, REQUEST, tasks, record, seen, {"said": "done"})


def check(project: Project) -> Any:
    return settled.check(project.root, REQUEST)


@pytest.fixture
def built(project: Project) -> Project:
    (project.root / "data").mkdir()
    (project.root / "data/1").write_text("1")
    (project.root / "recipe").write_text("recipe")
    assert check(project) is None
    assert build(project)
    assert check(project) == {"said": "done"}
    return project


CHANGES: dict[str, Callable[[Path], object]] = {
    "source edited": lambda root: (root / "in.txt").write_text("IN "),
    "source gone": lambda root: (root / "in.txt").unlink(),
    "output edited": lambda root: (root / "build/target/s1.txt").write_text("in ba"),
    "output gone": lambda root: (root / "build/target/s1.txt").unlink(),
    "recipe edited": lambda root: (root / "recipe").write_text("RECIPE"),
    "new file": lambda root: (root / "data/2").write_text("2"),
    "file renamed": lambda root: (root / "data/1").rename(root / "data/0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_unsettles(built: Project, change: str) -> None:
    CHANGES[change](built.root)
    assert check(built) is None


def test_replaced_in_place_with_time_kept(built: Project) -> None:
    path = built.root / "in.txt"
    before = path.stat()
    path.write_text("IN ")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert check(built) is None


def test_another_tool_unsettles(built: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "newer"))
    monkeypatch.setattr(sys, "path", [sys.path[1], sys.path[0], *sys.path[2:]])
    assert check(built) is None


def test_another_request_is_another_matter(built: Project) -> None:
    assert settled.check(built.root, {"targets": ["other"]}) is None
    assert settled.check(built.root, {"targets": ["target"], "until": "check"}) is None


def test_an_edited_package_unsettles(built: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "_package", lambda: ["edited source"])
    assert check(built) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
def test_a_damaged_note_is_no_answer(built: Project, text: str) -> None:
    (note,) = (built.state / "settled").iterdir()
    note.write_text(text)
    assert check(built) is None


def test_what_changes_while_the_build_goes_on_is_not_settled(built: Project) -> None:
    root = built.root
    for change in ("recipe edited", "source edited", "output edited", "new file"):
        assert not build(built, meanwhile=lambda change=change: CHANGES[change](root)), change  # type: ignore[misc]
        assert build(built)


def test_what_the_plan_itself_wrote_is_no_change(built: Project) -> None:
    seen = settled.Seen()
    seen.add(built.root / "data")
    (built.root / "data/lock").write_text("written by the plan")
    seen.wrote(built.root / "data/lock")
    tasks = chain(built.root)
    assert settled.write(built, REQUEST, tasks, execute(built, tasks), seen, {"said": "again"})
    assert check(built) == {"said": "again"}
    (built.root / "data/lock").write_text("edited")
    assert check(built) is None


def test_a_failed_build_is_not_settled(project: Project) -> None:
    head = task(dummies.JOIN, {"text": "long"})
    tasks = plan([head, task(dummies.GATE, {"limit": 1}, {"text": of(head)})])
    seen = settled.Seen()
    record = execute(project, tasks)
    assert not settled.write(project, REQUEST, tasks, record, seen, {})


def test_the_quick_answer_imports_the_standard_library_alone(built: Project) -> None:
    time.sleep(0.01)
    code = (
        "import sys; from npubake.pipeline import settled\n"
        f"settled.check({str(built.root)!r}, {REQUEST!r})\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))\n"
        "print(*sorted({'subprocess', 'asyncio', 'importlib.metadata'} & sys.modules.keys()))"
    )
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "__main__ npubake" if "__main__" not in sys.stdlib_module_names else "npubake",
        "",
    ]


def test_the_real_package_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = [entry[0] for entry in settled._package()[1:]]
    assert "/pipeline/settled.py" in names
    assert "/errors.py" in names
    assert not [name for name in names if "__pycache__" in name]


def test_a_copied_project_is_not_settled_by_the_originals_files(built: Project, tmp_path: Path) -> None:
    copy = shutil.copytree(built.root, tmp_path / "copy")
    assert settled.check(copy, REQUEST) is None
    assert check(built) == {"said": "done"}
