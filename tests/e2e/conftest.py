"""One project is built once at the default level of tuning, and once without tuning; every test works on a copy.

A test whose subject is not tuning, but which builds anew, carries ``@pytest.mark.untuned``: its builds cost half.
"""

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


@pytest.fixture(scope="session")
def untuned_once(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same without tuning. Never changed: take ``built`` in a test marked ``untuned``."""
    workspace = Workspace.untuned(tmp_path_factory.mktemp("untuned") / "project")
    workspace.build()
    return workspace


def is_untuned(request: pytest.FixtureRequest) -> bool:
    """Whether the test is marked so."""
    return request.node.get_closest_marker("untuned") is not None


@pytest.fixture
def built(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    """A copy of the built project, settled: a build in it has nothing to do."""
    pristine: Workspace = request.getfixturevalue("untuned_once" if is_untuned(request) else "built_once")
    return pristine.copy(tmp_path / "project")


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    """A project that was never built."""
    create = Workspace.untuned if is_untuned(request) else Workspace.create
    return create(tmp_path / "project")
