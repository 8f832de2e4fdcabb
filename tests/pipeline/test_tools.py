"""Versions of installed distributions."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from npubake.errors import ToolchainError
from npubake.pipeline.tools import InstalledTools

NAMES = ("numpy", "onnx", "onnxruntime", "PyYAML", "doit", "import-linter", "pillow", "networkx")


def test_versions_agree_with_importlib() -> None:
    assert InstalledTools().versions(NAMES) == {name: importlib.metadata.version(name) for name in NAMES}


def install(folder: Path, name: str, version: str, kind: str = "dist-info") -> None:
    made = folder / f"{name}-{version}.{kind}"
    made.mkdir(parents=True)
    metadata = made / ("METADATA" if kind == "dist-info" else "PKG-INFO")
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: 9 in the text\n")


def test_the_first_on_the_path_wins_and_names_are_normalised(tmp_path: Path) -> None:
    install(tmp_path / "a", "Some_Tool", "2.0")
    install(tmp_path / "b", "some.tool", "1.0")
    install(tmp_path / "b", "old", "0.1", "egg-info")
    tools = InstalledTools([str(tmp_path / "missing"), str(tmp_path / "a"), str(tmp_path / "b")])
    assert tools.versions(["some-tool", "old"]) == {"some-tool": "2.0", "old": "0.1"}
    found = tools.find("SOME.TOOL")
    assert found is not None
    assert found.metadata == tmp_path / "a/Some_Tool-2.0.dist-info/METADATA"


def test_every_missing_tool_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as refused:
        InstalledTools([str(tmp_path)]).versions(["one", "two"])
    assert [fault.what.split()[3] for fault in refused.value.faults] == ["one", "two"]
    assert refused.value.faults[0].hint == "pip install one two"
