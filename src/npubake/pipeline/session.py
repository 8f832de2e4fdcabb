"""Pipeline: one build at work: brings single tasks up to date, in any order. Tasks in, results out.

Knows the store, the workers and the published files; the order is the scheduler's. Safe to use from several threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from npubake.errors import BuildError, Fault, RecipeError, StageError, StoreError
from npubake.pipeline.freshness import Probe, Prober
from npubake.pipeline.pool import Damaged, WorkerPool, preload
from npubake.pipeline.project import Last, Project
from npubake.pipeline.runrecord import Listener, Outcome, RunRecord, Silence, TaskResult
from npubake.pipeline.store import Record
from npubake.pipeline.task import Literal, Output, SourceFile, Task
from npubake.pipeline.worker import Specification

_ATTEMPTS = 5  # a file that changes under the build, or a blob that is damaged again and again, is told in the end


class Session:
    """A build of ``tasks`` (in topological order). Use as a context manager; ``is_current`` alone needs no ``with``."""

    def __init__(
        self, project: Project, tasks: Sequence[Task], *, threads: int = 1, listener: Listener | None = None
    ) -> None:
        self.project = project
        self.tasks = tuple(tasks)
        self._threads = threads
        self._listener: Listener = listener or Silence()
        self._lock = threading.Lock()
        self._probes: dict[str, Probe] = {}
        self._prober = Prober(project, tasks)
        self._results: dict[str, TaskResult] = {}
        self._pool = WorkerPool(project.state / "numba")
        self._stack = contextlib.ExitStack()
        self._started = time.perf_counter()

    def __enter__(self) -> Session:
        self._stack.enter_context(self.project.store.in_use())
        self.project.store.sweep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        self.project.store.sweep()  # what an interrupted worker left
        self._stack.close()
        try:
            self.project.save()
        except OSError as problem:
            self._listener.warned(f"the project's state cannot be written: {problem}")

    def probe(self, task: str) -> Probe:
        """What the task would do now. Raises BuildError."""
        return self._prober.probe(self._prober.tasks[task])

    def is_current(self, task: str) -> bool:
        """Whether there is nothing to do for the task. A refusal counts as no: ``perform`` will tell it."""
        try:
            probe = self.probe(task)
        except BuildError:
            return False
        if probe.outcome != "reuse":
            return False
        self._note(probe, "reused")
        return True

    def perform(self, task: str) -> bool:
        """Bring the task up to date; False where it failed (the result holds the error)."""
        started = time.perf_counter()
        wanted = self._prober.tasks[task]
        try:
            self._bring(wanted)
        except BuildError as error:
            self._note_failure(wanted, error, time.perf_counter() - started)
            return False
        return True

    def record(self) -> RunRecord:
        """What was done; tasks never come to are ``skipped``."""
        results: dict[str, TaskResult] = {}
        for task in self.tasks:
            results[task.id] = self._results.get(task.id) or self._skipped(task, results)
        return RunRecord(results=tuple(results.values()), seconds=time.perf_counter() - self._started)

    def _bring(self, task: Task) -> None:
        for _ in range(_ATTEMPTS):
            probe = self._probes[task.id] = self._prober.probe(task)
            if probe.record is not None and self._publish(task, probe.record):
                self._note(probe, "restored" if probe.outcome == "restore" else "reused")
                return
            if probe.dictionary is None or probe.key is None:
                self._heal(task, self._lost_inputs(task))
                continue
            with self.project.store.lock(probe.key, lambda: self._tell("waiting", task)):
                if self.project.store.record(probe.key) is not None:
                    continue  # another build made it while this one waited
                made = self._run(task, probe)
            if isinstance(made, Record):
                self._prober.records[task.id] = made
                if self._publish(task, made):
                    self._note(replace(probe, record=made), "ran")
                    return
            elif made is not None:
                self._heal(task, made.digests)
        what = "a blob that this task needs or makes is damaged again and again"
        raise StoreError(Fault(what=what, where=task.id, hint="check the disk, then run `npubake cache fsck`"))

    def _run(self, task: Task, probe: Probe) -> Record | Damaged | None:
        """Run the task in a worker. None where a source file changed meanwhile, so that the key is another."""
        assert probe.dictionary is not None
        if not self._ingest(task, probe):
            return None
        self._tell("started", task, probe.reasons)
        specification = Specification(
            task=task.id,
            run=task.stage.run,
            outputs=tuple(task.stage.outputs),
            dictionary=probe.dictionary,
            store=str(self.project.store.root),
            threads=self._threads,
            preload=preload(task.stage.tools),
        )
        made = self._pool.run(specification, lambda done, total: self._tell("progress", task, done, total))
        if isinstance(made, Record):
            self._refuse_changed_code(task, made)
        return made

    def _ingest(self, task: Task, probe: Probe) -> bool:
        """Bring source files and literals into the store; False where a file no longer is what the key says."""
        assert probe.dictionary is not None
        store, inputs = self.project.store, probe.dictionary["inputs"]
        for port, items in task.inputs.items():
            for item, digest in zip(items, inputs.get(port, ()), strict=True):
                if isinstance(item, Literal):
                    store.put(item.data, digest)
                elif isinstance(item, SourceFile) and not store.has(digest):
                    path = self.project.path(item.path)
                    try:
                        copied = store.put_file(path)
                    except FileNotFoundError as error:
                        what = "the file vanished during the build"
                        raise RecipeError(Fault(what=what, where=item.path)) from error
                    if copied != digest:
                        return False
        return True

    def _heal(self, task: Task, digests: Sequence[str]) -> None:
        """Make the tasks anew whose outputs the store has lost; sources are copied again by the next attempt."""
        makers = {item.task for items in task.inputs.values() for item in items if isinstance(item, Output)}
        for maker in sorted(makers):
            record = self._prober.records.get(maker)
            if record is None or any(blob.digest in digests for blob in record.outputs.values()):
                self._prober.records.pop(maker, None)
                self._bring(self._prober.tasks[maker])

    def _lost_inputs(self, task: Task) -> Sequence[str]:
        records = (self._prober.records.get(task_id) for task_id in task.predecessors())
        return [blob.digest for record in records if record for blob in record.outputs.values()]

    def _publish(self, task: Task, record: Record) -> bool:
        """Put the published files right; False where a blob turns out to be damaged."""
        self._prober.records[task.id] = record
        for item in self._prober.wrong_files(task, record):
            path = self.project.path(item.path)
            if path.is_dir():
                what = "a folder stands where an artifact belongs"
                raise StoreError(Fault(what=what, where=item.path, hint="move it away"))
            if not self.project.store.restore(record.outputs[item.port].digest, path):
                self._prober.records.pop(task.id)
                return False
        return True

    def _refuse_changed_code(self, task: Task, made: Record) -> None:
        self.project.code.forget()
        if self.project.code.digest(task.stage.run) != made.dictionary.get("code"):
            self.project.store.forget(made.key)
            what = "the stage's source was edited while it ran; its result is not kept"
            raise StageError(Fault(what=what, where=task.stage.run, hint="build again"))

    def _note(self, probe: Probe, outcome: Outcome) -> None:
        assert probe.record is not None
        self._prober.records[probe.task.id] = probe.record
        seconds = probe.record.seconds if outcome == "ran" else 0.0
        result = TaskResult(
            task=probe.task, outcome=outcome, key=probe.key, seconds=seconds, reasons=probe.reasons, record=probe.record
        )
        self._finish(result, probe)

    def _note_failure(self, task: Task, error: BuildError, seconds: float) -> None:
        probe = self._probes.get(task.id)
        key, reasons = (probe.key, probe.reasons) if probe else (None, ())
        result = TaskResult(task=task, outcome="failed", key=key, seconds=seconds, reasons=reasons, error=error)
        self._finish(result, probe)

    def _finish(self, result: TaskResult, probe: Probe | None) -> None:
        known = self._results.get(result.task.id)
        if known is not None and known.outcome == "ran" and result.outcome != "failed":
            return  # made anew for the sake of a successor: it ran
        self._results[result.task.id] = result
        if probe is not None and probe.key is not None and probe.dictionary is not None:
            last = Last(key=probe.key, dictionary=probe.dictionary, failed=result.outcome == "failed")
            with self._lock:
                self.project.remember(result.task, last)
        self._tell("finished", result)

    def _tell(self, event: str, *facts: object) -> None:
        with self._lock:
            getattr(self._listener, event)(*facts)

    def _skipped(self, task: Task, results: dict[str, TaskResult]) -> TaskResult:
        waits = [results[before] for before in task.predecessors() if results[before].outcome in ("failed", "skipped")]
        reasons = tuple(f"waits for {result.task.name}, which {result.outcome}" for result in waits)
        return TaskResult(task=task, outcome="skipped", reasons=reasons or ("the build stopped at the first failure",))
