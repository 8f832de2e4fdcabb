"""Fixtures of the pipeline's tests: a small project with one source file."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.pipeline.project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with ``in.txt`` and its own store."""
    monkeypatch.delenv("NPUBAKE_STORE", raising=False)
    root = tmp_path / "project"
    root.mkdir()
    (root / "in.txt").write_text("in ")
    return Project(root)


def again(project: Project) -> Project:
    """The same project as another process would see it: nothing remembered but what is on the disk."""
    return Project(project.root, project.store.root)
