"""Which project a command is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.cli import root
from npubake.errors import UsageError


def test_the_project_is_found_from_any_folder_below(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert root.find(str(deep)) == tmp_path


def test_outside_a_project_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        root.find(str(tmp_path))
    assert refused.value.faults[0].where == str(tmp_path)
