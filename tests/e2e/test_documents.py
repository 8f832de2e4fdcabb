"""The documents' commands run, and print what the documents show.

A ```console block holds commands after ``$ `` and, below each, lines of what it prints: figures, paths of the machine
and widths of columns may differ, words may not; a line ``…`` stands for any lines. The blocks of the README run in
order in one copy of the project, as a newcomer would; ``make build`` is what the Makefile makes of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.workspace import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
# Pages of toolchains that are extras: tests of these run their commands.
TOOLCHAIN_PAGES = sorted((REPOSITORY / "docs" / "toolchains").glob("*.md"))
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PARTS = ("recipes", "platforms", "schemas", "models", "data", "pyproject.toml", "Makefile")


@dataclass(frozen=True)
class Shown:
    """One command of a document and the lines shown below it."""

    page: str
    command: str
    lines: tuple[str, ...]


def shown_commands(pages: Sequence[Path]) -> list[Shown]:
    """Every command, pages in order."""
    found = []
    for page in pages:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *lines = part.rstrip("\n").split("\n")
                found.append(Shown(page.name, command, tuple(lines)))
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone holds, without build and store."""
    return copy_of_a_clone(tmp_path_factory.mktemp("documents") / "npubake")


def copy_of_a_clone(root: Path) -> Path:
    """What a clone holds, in a new folder ``root``."""
    root.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / part)
    return root


def executed(command: str) -> str:
    """What stands for the command here: the environment is this one already, and the suite is not run inside itself."""
    command = re.sub(
        r"^make build(?: recipe=(\S+))?", lambda match: f"npubake build {match[1] or 'yolo_640_j6p'}", command
    )
    return re.sub(r"^make (test|check)", r"make --dry-run \1", command)


def signature(line: str) -> str:
    """A line without its figures and widths."""
    return re.sub(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", "#", re.sub(r"\s+|-{3,}", " ", line)).strip()


def test_every_command_shown_runs_and_prints_what_is_shown(checkout: Path) -> None:
    shown = shown_commands(PAGES)
    assert any(entry.command.startswith("make build") for entry in shown)
    wrong = wrong_commands(shown, checkout)
    assert not wrong, "\n\n".join(wrong)


def wrong_commands(shown: Sequence[Shown], checkout: Path, timeout: float = 400) -> list[str]:
    """Runs every command in ``checkout``; what went otherwise than shown. timeout: seconds for one."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    wrong = []
    for entry in shown:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", executed(entry.command)],
            cwd=checkout,
            env={**os.environ, "PATH": path, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        expected_code = 3 if "--check" in entry.command and "plan" in entry.command else 0
        if done.returncode != expected_code:
            wrong.append(f"{entry.page}: $ {entry.command}\n  ended with {done.returncode}: {done.stderr[-1500:]}")
            continue
        missing = absent_lines(entry.lines, done.stdout)
        if missing and not entry.command.startswith(("make test", "make check")):
            wrong.append(f"{entry.page}: $ {entry.command}\n  does not print {missing}\n{done.stdout[:3000]}")
    return wrong


def absent_lines(lines: tuple[str, ...], printed: str) -> list[str]:
    """Lines shown that do not come in this order in what was printed."""
    rest = [signature(line) for line in printed.splitlines()]
    absent = []
    for line in lines:
        wanted = signature(line)
        if wanted in ("", "…"):
            continue
        if wanted in rest:
            rest = rest[rest.index(wanted) + 1 :]
        else:
            absent.append(line)
    return absent


def test_every_word_of_the_command_line_and_the_formats_is_documented() -> None:
    from npubake.cli.parser import build_parser
    from npubake.recipe.presets import PRESETS
    from npubake.stages import STAGES

    text = "\n".join(page.read_text(encoding="utf-8") for page in (*PAGES, *TOOLCHAIN_PAGES))
    words = {f"`{name}`" for name in (*PRESETS, *STAGES)} | {
        path.stem for path in (REPOSITORY / "platforms").glob("*.yaml")
    }
    for action in build_parser()._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        words |= {option for entry in action._actions for option in entry.option_strings if option.startswith("--")}
    assert {word for word in words if word not in text} == set()
