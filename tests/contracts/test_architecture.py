"""docs/architecture.md names the rooms, layers and stages that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from npubake.stages import STAGES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def first_cells(section: str) -> list[str]:
    """Names in backticks of the first column of the table below ``section``."""
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE.partition(section)[2].partition("\n\n**")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]*)`", row)]


def test_layers_are_those_of_the_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    wanted = [re.findall(r"\w+", layer) for layer in layers if layer != "__main__"]
    (line,) = [line for line in PAGE.splitlines() if line.startswith("`cli` · ")]
    assert [re.findall(r"\w+", part) for part in line.split(" · ")] == wanted
    rooms = [name for names in wanted for name in names]
    assert sorted(set(first_cells("## Rooms")) & set(rooms)) == sorted(rooms)


def test_parameters_of_every_stage_are_listed() -> None:
    assert sorted(first_cells("**Parameters of the stages**")) == sorted(STAGES)
