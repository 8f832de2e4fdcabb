"""One project is built once; every test works on a copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.workspace import Workspace


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The pristine built project. Never changed: take ``built``."""
    workspace = Workspace.create(tmp_path_factory.mktemp("pristine") / "project")
    workspace.build()
    return workspace


@pytest.fixture
def built(built_once: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the built project, settled: a build in it has nothing to do."""
    return built_once.copy(tmp_path / "project")


@pytest.fixture
def fresh(tmp_path: Path) -> Workspace:
    """A project that was never built."""
    return Workspace.create(tmp_path / "project")
