"""Pipeline: a project: root, store, and the state under ``.npubake/`` that makes a build quick or explains it.

``digests.json`` and ``code.json`` are caches; ``last/<target>.json`` holds the last key dictionary of each task, for
explain. None of it decides what is fresh: the store does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import npubake
from npubake.errors import Fault, UsageError
from npubake.pipeline.code import CodeDigests
from npubake.pipeline.digests import FileDigests
from npubake.pipeline.files import write_atomic
from npubake.pipeline.store import Store
from npubake.pipeline.task import Task
from npubake.pipeline.tools import InstalledTools

STATE = ".npubake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """How a task was last built in this project."""

    key: str
    dictionary: Mapping[str, Any]
    failed: bool = False


class Project:
    """A project at ``root``. The store is ``store``, else ``NPUBAKE_STORE``, else ``.npubake/store`` in the project."""

    def __init__(self, root: Path, store: Path | None = None, *, tools: InstalledTools | None = None) -> None:
        self.root = root.resolve()
        self.state = self.root / STATE
        self.store = Store(self._store_path(store))
        self.digests = FileDigests(self.state / "digests.json")
        self.code = CodeDigests(Path(npubake.__file__).parent, self.state / "code.json")
        self.tools = tools or InstalledTools()
        self._last: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()

    def path(self, name: str) -> Path:
        """A path of the project; ``name`` is relative to the root, or absolute."""
        return self.root / name

    def last(self, task: Task) -> Last | None:
        """How the task was last built here: by its role, in the first of its targets that knows it."""
        for target in task.targets:
            entry = self._target(target).get(task.name)
            if entry is not None:
                return Last(**entry)
        return None

    def failed(self, target: str) -> tuple[str, ...]:
        """Names of the tasks that failed when they were last built for the target."""
        return tuple(name for name, entry in self._target(target).items() if entry["failed"])

    def remember(self, task: Task, last: Last) -> None:
        """Note how the task was built, for explain; ``save`` writes it."""
        for target in task.targets:
            entries = self._target(target)
            entry = asdict(last)
            if entries.get(task.name) != entry:
                entries[task.name] = entry
                self._changed.add(target)

    def save(self) -> None:
        """Write the state that changed. Raises OSError."""
        if not self.state.is_dir():
            self.state.mkdir(parents=True)
            (self.state / ".gitignore").write_text("*\n")
        for target in sorted(self._changed):
            data = json.dumps(self._target(target), separators=(",", ":")).encode()
            write_atomic(self._last_path(target), data, "last")
        self._changed.clear()
        self.digests.save()
        self.code.save()

    def _store_path(self, store: Path | None) -> Path:
        chosen = store or (Path(named) if (named := os.environ.get("NPUBAKE_STORE")) else None)
        if chosen is None:
            return self.state / "store"
        path = (self.root / chosen.expanduser()).resolve()
        if path.exists() and not path.is_dir():
            hint = "name a folder; it is made when it does not exist"
            raise UsageError(Fault(what="the store is not a folder", where=str(path), hint=hint))
        return path

    def _target(self, target: str) -> dict[str, Any]:
        if target not in self._last:
            entries: Any = {}
            with contextlib.suppress(OSError, ValueError):  # explain then says that nothing is known
                entries = json.loads(self._last_path(target).read_bytes())
            self._last[target] = entries if isinstance(entries, dict) else {}
        return self._last[target]

    def _last_path(self, target: str) -> Path:
        return self.state / "last" / f"{target}.json"
