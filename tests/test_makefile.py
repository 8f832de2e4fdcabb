"""The Makefile: a misspelt variable is refused, those that it knows reach the commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """A make of its own, also where the suite itself is run by one."""
    inherited = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    alone = {name: value for name, value in os.environ.items() if name not in inherited}
    return subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, env=alone, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", [("build", "recpie=x"), ("test", "pytests=-x"), ("RECIPE=a", "build", "recipe=b")])
def test_an_unknown_variable_is_refused_with_the_known_ones(words: tuple[str, ...]) -> None:
    done = make(*words)
    assert done.returncode == 2
    assert "Known: recipe pytest PYTHON VENV" in done.stderr


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("build",), "npubake build recipe=yolo_640_j6p"),
        (("build", "recipe=a,b"), "npubake build recipe=a,b"),
        (("build", "recipe="), "npubake build recipe="),  # which npubake refuses: it must not mean all
        (("test", "pytest=-x -k some"), "pytest -n 2 --dist loadfile -x -k some"),
        (("test", "PYTHON=python3"), "pytest -n 2 --dist loadfile"),
        (("test-qualcomm",), "pytest -n 2 --dist loadfile tests/qualcomm"),
        (("test-qualcomm", "pytest=-k doctor"), "pytest -n 2 --dist loadfile tests/qualcomm -k doctor"),
    ],
)
def test_a_known_variable_reaches_its_command(words: tuple[str, ...], command: str) -> None:
    done = make(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(command)


def test_the_extra_never_reaches_the_environment_of_the_suite() -> None:
    """There it would hide what must work without it."""
    plain, extra = make("test", "check", "build", "VENV=none"), make("test-qualcomm", "VENV=none")
    assert "qualcomm" not in plain.stdout
    assert "qualcomm" in extra.stdout
    assert "none/" not in extra.stdout
