"""Pipeline: the doit backend that keeps nothing. Imports nothing, so that doit can load it for any command."""

from __future__ import annotations

from typing import Any, ClassVar


class NothingDB:
    """A doit backend that keeps nothing beyond the process: no file, no lock, nothing to be stale or corrupt."""

    desc: ClassVar[str] = "stores nothing: npubake's store knows what is fresh"

    def __init__(self, name: str, codec: object, *, module_name: str | None = None) -> None:  # noqa: ARG002 - doit's
        self.name = name
        self._values: dict[str, dict[str, Any]] = {}

    def dump(self) -> None:
        """Write nothing."""

    def set(self, task_id: str, dependency: str, value: Any) -> None:
        """Remember for this process."""
        self._values.setdefault(task_id, {})[dependency] = value

    def get(self, task_id: str, dependency: str) -> Any:
        """What this process remembers, or None."""
        return self._values.get(task_id, {}).get(dependency)

    def in_(self, task_id: str) -> bool:
        """Whether this process remembers the task."""
        return task_id in self._values

    def remove(self, task_id: str) -> None:
        """Forget a task."""
        self._values.pop(task_id, None)

    def remove_all(self) -> None:
        """Forget all."""
        self._values.clear()
