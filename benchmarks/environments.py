"""Environments beside this one: one a peer, and one that holds torch for the export, each in ``CACHE/venvs/NAME``.

The packages and their versions stand in pyproject.toml as the extras ``bench-NAME``.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements(name: str) -> list[str]:
    """The pinned packages of one environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"][f"bench-{name}"])


def python_of(cache: Path, name: str) -> Path:
    return cache / "venvs" / name / "bin" / "python"


def install(cache: Path, name: str) -> int:
    """Make the environment where it is missing, and install its packages; pip's exit code."""
    python = python_of(cache, name)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
    return subprocess.run([str(python), "-m", "pip", "install", "-q", *requirements(name)], check=False).returncode
