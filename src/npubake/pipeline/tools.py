"""Pipeline: versions of installed distributions, read from their METADATA. Names in; versions and their files out.

One scan of ``sys.path`` instead of ``importlib.metadata`` (which costs 30 ms to import, and a scan for each name).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from npubake.errors import Fault, ToolchainError


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """An installed distribution: its version, and the file that states it."""

    version: str
    metadata: Path


class InstalledTools:
    """The distributions that Python would import from; the first on ``sys.path`` wins, as for imports."""

    def __init__(self, search_path: Iterable[str] | None = None) -> None:
        self._search_path = list(sys.path if search_path is None else search_path)
        self._folders: dict[str, Path] | None = None
        self._found: dict[str, Distribution] = {}

    def versions(self, names: Iterable[str]) -> dict[str, str]:
        """Name -> version. Raises ToolchainError with every name that is not installed."""
        wanted = sorted(set(names))
        missing = [name for name in wanted if self.find(name) is None]
        if missing:
            hint = f"pip install {' '.join(missing)}"
            raise ToolchainError(
                *(Fault(what=f"the Python package {name} is not installed", hint=hint) for name in missing)
            )
        return {name: found.version for name in wanted if (found := self.find(name)) is not None}

    def find(self, name: str) -> Distribution | None:
        """The installed distribution called ``name``, or None."""
        name = _normalised(name)
        if name not in self._found:
            if self._folders is None:
                self._folders = _scan(self._search_path)
            folder = self._folders.get(name)
            found = _read(folder) if folder is not None else None
            if found is None:
                return None
            self._found[name] = found
        return self._found[name]


def _scan(search_path: Iterable[str]) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for entry in search_path:
        try:
            names = sorted(os.listdir(entry or "."))  # noqa: PTH208 - names are all it takes
        except OSError:
            continue  # zip files and folders that do not exist hold no distribution folders
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                folders.setdefault(_normalised(name.rpartition(".")[0].partition("-")[0]), Path(entry or ".") / name)
    return folders


def _read(folder: Path) -> Distribution | None:
    metadata = folder / ("METADATA" if folder.suffix == ".dist-info" else "PKG-INFO")
    if not metadata.is_file():
        return None
    with metadata.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith("Version:"):
                return Distribution(version=line.partition(":")[2].strip(), metadata=metadata)
            if not line.strip():
                break
    return None


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
