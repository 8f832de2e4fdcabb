"""Pipeline: what a build did: one result a task. Data only; manifest and final table are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from npubake.errors import BuildError
from npubake.pipeline.store import Blob, Record
from npubake.pipeline.task import Task

Outcome = Literal["ran", "restored", "reused", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task's result. reused: nothing was touched; restored: files came from the store; key: None when skipped."""

    task: Task
    outcome: Outcome
    key: str | None = None
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()
    record: Record | None = None
    error: BuildError | None = None

    @property
    def outputs(self) -> Mapping[str, Blob]:
        """Port -> digest and size; empty unless the task succeeded."""
        return self.record.outputs if self.record else {}

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        found: dict[str, Any] = {
            "task": self.task.id,
            "stage": self.task.stage.name,
            "role": self.task.name,
            "key": self.key,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "targets": list(self.task.targets),
            "outputs": {port: {"digest": blob.digest, "size": blob.size} for port, blob in self.outputs.items()},
            "reasons": list(self.reasons),
        }
        if self.error is not None:
            found["faults"] = [str(fault) for fault in self.error.faults]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The results of a build, in the plan's order."""

    results: tuple[TaskResult, ...]
    seconds: float
    _by_id: dict[str, TaskResult] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_id.update({result.task.id: result for result in self.results})

    @property
    def failures(self) -> tuple[TaskResult, ...]:
        """The tasks that failed; those skipped because of them are not among them."""
        return tuple(result for result in self.results if result.outcome == "failed")

    def __getitem__(self, task: str) -> TaskResult:
        return self._by_id[task]

    def after(self, earlier: RunRecord) -> RunRecord:
        """This record as the second part of one build: what ``earlier`` ran or restored did not just stay as it was.

        What only ``earlier`` came to stands first.
        """
        before = {result.task.id: result for result in earlier.results if result.outcome in ("ran", "restored")}
        first = (result for result in earlier.results if result.task.id not in self._by_id)
        second = (
            before.get(result.task.id, result) if result.outcome == "reused" else result for result in self.results
        )
        return RunRecord(results=(*first, *second), seconds=earlier.seconds + self.seconds)

    def to_json(self) -> list[dict[str, Any]]:
        """As JSON values, one object a task."""
        return [result.to_json() for result in self.results]


class Listener(Protocol):
    """Who wants to see a build go on. Called from several threads, one call at a time."""

    def started(self, task: Task, reasons: tuple[str, ...]) -> None:
        """A worker begins the task, for these reasons."""

    def waiting(self, task: Task) -> None:
        """Another build is at the same task; this one waits for its result."""

    def progress(self, task: Task, done: int, total: int) -> None:
        """The task has come so far."""

    def finished(self, result: TaskResult) -> None:
        """The task has ended, whatever the outcome."""

    def warned(self, text: str) -> None:
        """Something that does not stop the build, and that a person should know."""


class Silence:
    """A listener that ignores everything."""

    def started(self, task: Task, reasons: tuple[str, ...]) -> None: ...

    def waiting(self, task: Task) -> None: ...

    def progress(self, task: Task, done: int, total: int) -> None: ...

    def finished(self, result: TaskResult) -> None: ...

    def warned(self, text: str) -> None: ...
