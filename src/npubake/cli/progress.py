"""Command line room: a build as it goes on. A live bar for each task at work on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from npubake.cli.text import whose
from npubake.pipeline.runrecord import TaskResult
from npubake.pipeline.task import Task

if TYPE_CHECKING:
    from rich.progress import TaskID

QUIET_OUTCOMES = ("reused",)
REPORT_EVERY_S = 10.0


class Lines:
    """A line on standard error for what begins, ran, was restored or failed, and for what takes long; for logs and CI.

    clock: monotonic seconds.
    """

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._next: dict[str, float] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def started(self, task: Task, reasons: tuple[str, ...]) -> None:  # noqa: ARG002 - the listener's form
        """One line, so that a long stage is not silent."""
        self._next[task.id] = self._clock() + REPORT_EVERY_S
        self._say(f"{task.name:<24} ...                  {whose(task.targets)}")

    def waiting(self, task: Task) -> None:
        """Say who holds the work up."""
        self._say(f"{task.name}: another build is at it, waiting")

    def progress(self, task: Task, done: int, total: int) -> None:
        """A line every ten seconds: lines are not redrawn."""
        if self._clock() >= self._next.get(task.id, 0.0):
            self._next[task.id] = self._clock() + REPORT_EVERY_S
            self._say(f"{task.name:<24} {done}/{total}")

    def finished(self, result: TaskResult) -> None:
        """One line with outcome and time."""
        if result.outcome not in QUIET_OUTCOMES:
            self._say(
                f"{result.task.name:<24} {result.outcome:<9}{result.seconds:7.2f} s  {whose(result.task.targets)}"
            )

    def warned(self, text: str) -> None:
        """A warning is shown however quiet the build is."""
        print(f"warning: {text}", file=sys.stderr)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)


class Bars(Lines):
    """rich's progress bars on a terminal; finished tasks leave a line above them."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._shown: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def started(self, task: Task, reasons: tuple[str, ...]) -> None:  # noqa: ARG002 - the listener's form
        """A bar that knows no total yet."""
        self._shown[task.id] = self._bars.add_task(task.name, total=None, count="")

    def progress(self, task: Task, done: int, total: int) -> None:
        """Move the task's bar."""
        if task.id in self._shown:
            self._bars.update(self._shown[task.id], completed=done, total=total, count=f"{done}/{total}")

    def finished(self, result: TaskResult) -> None:
        """Take the bar away; leave a line."""
        if (shown := self._shown.pop(result.task.id, None)) is not None:
            self._bars.remove_task(shown)
        super().finished(result)

    def warned(self, text: str) -> None:
        """Above the bars."""
        self._bars.console.print(f"warning: {text}", style="yellow", highlight=False, markup=False)

    def _say(self, text: str) -> None:
        self._bars.console.print(text, highlight=False, markup=False, soft_wrap=True)


def listener(*, quiet: bool, bars: bool = True) -> Lines:
    """Bars on a terminal, lines elsewhere, next to nothing when quiet."""
    if quiet or not bars or not sys.stderr.isatty():
        return Lines(quiet=quiet)
    return Bars()
