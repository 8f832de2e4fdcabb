"""Findings as text: what is printed can be pasted into the recipe, and the loader takes it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from npubake.cli.findings import findings_text
from npubake.recipe.loader import load_recipe
from npubake.recipe.recipe import Recipe
from tests.quant.test_lint import CASES, GRAPH, PLAIN, found
from tests.recipe.writing import SMALL, write

PLAIN_OVERRIDES = "layer_overrides:\n- match: {names: [a]}\n  set: {activation: int16}\n"
INDENTED = "layer_overrides:\n    - match:\n        names: [a]\n      set: {activation: int16}\n"
BLOCK = SMALL.replace("calibration: {data: ../data}", "calibration:\n   data: ../data\n   samples: 16")


def printed(lines: list[str]) -> list[list[str]]:
    """The blocks to paste, letter by letter: what stands below the words, up to an empty line."""
    blocks: list[list[str]] = []
    told = ("warning: ", "note: ", "the lines of all warnings:")
    for line in lines:
        if not line:
            blocks.append([])
        elif not line.startswith(told):
            blocks[-1].append(line)
    return [block for block in blocks if block]


def paste(recipe: Path, block: list[str]) -> Recipe:
    """As a person would: at the end of the file, or where the comment says."""
    lines = recipe.read_text().splitlines()
    if not block[0].startswith("# "):
        lines += block
    elif block[0].startswith("# at the end of"):  # it is the last key here
        assert block[0].endswith(f"recipes/{recipe.name}:{1 + next(i for i, line in enumerate(lines) if '- ' in line)}")
        lines += block[1:]
    else:
        at = int(block[0].rpartition(":")[2]) - 1
        key = block[1].partition(":")[0]
        lines = [line for line in lines if not line.startswith(f"{key}:")]
        lines[at:at] = block[1:]
    other = recipe.with_name("pasted.yaml")
    other.write_text("\n".join(lines) + "\n")
    return load_recipe(other)


@pytest.mark.parametrize("text", [BLOCK, BLOCK + PLAIN_OVERRIDES, BLOCK + INDENTED], ids=["none", "flush", "indented"])
def test_every_line_that_is_printed_can_be_pasted(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "r.yaml", text)
    before = len(load_recipe(path).layer_overrides)
    every: list[dict[str, Any]] = []
    for tensor, changed, lane in CASES.values():
        findings = [asdict(entry) for entry in found(GRAPH, {**PLAIN, **changed}, lane)]
        assert tensor in {entry["tensor"] for entry in findings}
        every += findings
        for block in printed(findings_text(findings, load_recipe(path))):
            recipe = paste(path, block)
            assert (recipe.calibration.samples, len(recipe.layer_overrides)) in {(64, before), (16, before + 1)}
    warnings = {entry["recipe"] for entry in every if entry["severity"] == "warning"}
    last = printed(findings_text(every, load_recipe(path)))[-1]
    assert len(paste(path, last).layer_overrides) == before + len(warnings) > before + 3


def test_a_key_in_brackets_is_told_what_it_needs(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL))
    note = {"severity": "note", "tensor": "a", "what": "is dead", "recipe": "calibration:\n  samples: 4"}
    assert findings_text([note], recipe) == [
        "",
        "note: a: is dead",
        "# calibration stands in brackets at recipes/r.yaml:4; it needs:",
        "#   samples: 4",
    ]


def test_findings_that_the_same_lines_mend_stand_together_behind_the_warnings(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL))
    notes = [
        {"severity": "note", "tensor": name, "what": "is dead", "recipe": "layer_overrides:\n- x"} for name in "ab"
    ]
    warning = {"severity": "warning", "tensor": "c", "what": "is wide", "recipe": "layer_overrides:\n- y"}
    assert findings_text([notes[0], warning, notes[1]], recipe) == [
        "",
        "warning: c: is wide",
        "layer_overrides:",
        "- y",
        "",
        "note: a: is dead",
        "note: b: is dead",
        "layer_overrides:",
        "- x",
    ]
    assert findings_text([], recipe) == ["", "nothing found"]
