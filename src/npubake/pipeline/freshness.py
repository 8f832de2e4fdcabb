"""Pipeline: what each task would do, without doing it: run, restore, reuse, or unknown as an input comes anew.

In: a project and tasks. Out: outcomes with keys and reasons. Reads digests and records; imports no tensor library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

from npubake.errors import BuildError, Fault, RecipeError
from npubake.pipeline.explain import explain
from npubake.pipeline.key import key, key_dictionary
from npubake.pipeline.project import Project
from npubake.pipeline.store import Record
from npubake.pipeline.task import Input, Literal, Output, Publish, SourceFile, Task

Outcome = OneOf["run", "restore", "reuse", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What is known of a task. key and dictionary are None while an input is not made; record is None unless stored."""

    task: Task
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    key: str | None = None
    dictionary: Mapping[str, Any] | None = None
    record: Record | None = None


class Prober:
    """Answers for the tasks of one plan; ``records`` holds those of finished tasks, by task id.

    reading: nothing will be run, so that a tool that is not installed counts as the one of the task's last build.
    """

    def __init__(self, project: Project, tasks: Iterable[Task], *, reading: bool = False) -> None:
        self.project = project
        self._reading = reading
        self.tasks = {task.id: task for task in tasks}
        self.records: dict[str, Record] = {}
        self._absent: set[str] = set()  # tasks known to have no record yet, so that none is asked about twice

    def probe(self, task: Task) -> Probe:
        """Look the task up. Raises RecipeError for unreadable source files, ToolchainError for missing tools."""
        digests = self._digests(task)
        if digests is None:
            makers = sorted({self.tasks[item.task].name for item in _outputs(task) if self._record(item.task) is None})
            return Probe(task=task, outcome="unknown", reasons=tuple(f"{name} will be made anew" for name in makers))
        stage = task.stage
        tools = self._tools(task)
        dictionary = key_dictionary(task, digests, tools, self.project.code.digest(stage.run))
        wanted = key(dictionary)
        record = self.project.store.record(wanted)
        if record is None:
            reasons = self._why(task, wanted, dictionary)
            return Probe(task=task, outcome="run", reasons=reasons, key=wanted, dictionary=dictionary)
        wrong = self.wrong_files(task, record)
        return Probe(
            task=task,
            outcome="restore" if wrong else "reuse",
            reasons=tuple(f"{item.path} {self._state(item)}" for item in wrong),
            key=wanted,
            dictionary=dictionary,
            record=record,
        )

    def note(self, task: Task, record: Record | None) -> None:
        """Tell what is known of a task, before those that read its outputs are probed."""
        if record is None:
            self._absent.add(task.id)
        else:
            self.records[task.id] = record

    def wrong_files(self, task: Task, record: Record) -> list[Publish]:
        """The published files that are absent or hold other bytes than the record says."""
        return [item for item in task.publish if self._published(item) != record.outputs[item.port].digest]

    def _tools(self, task: Task) -> dict[str, str]:
        known, last = self.project.tools, self.project.last(task) if self._reading else None
        before: dict[str, str] = dict(last.dictionary.get("tools", {})) if last is not None else {}
        absent = {name: before[name] for name in task.stage.tools if name in before and known.find(name) is None}
        return {**known.versions(name for name in task.stage.tools if name not in absent), **absent}

    def _digests(self, task: Task) -> dict[str, list[str]] | None:
        faults: list[Fault] = []
        digests: dict[str, list[str]] = {}
        for port, items in task.inputs.items():
            found = [self._digest(item, faults) for item in items]
            digests[port] = [digest for digest in found if digest is not None]
            if len(digests[port]) < len(found) and not faults:
                return None
        if faults:
            raise RecipeError(*faults)
        return digests

    def _digest(self, item: Input, faults: list[Fault]) -> str | None:
        match item:
            case Literal():
                return item.digest
            case Output(task=maker, port=port):
                record = self._record(maker)
                return None if record is None else record.outputs[port].digest
            case SourceFile(path=name):
                path = self.project.path(name)
                try:
                    return self.project.digests.digest(path)
                except OSError as error:
                    faults.append(Fault(what=_unreadable(error), where=name, hint="name a file that can be read"))
        return None

    def _record(self, task: str) -> Record | None:
        """The record of a finished task; looked up in the store where this build has not come to it yet."""
        if task not in self.records and task not in self._absent:
            record = self.probe(self.tasks[task]).record
            if record is None:
                self._absent.add(task)
            else:
                self.records[task] = record
        return self.records.get(task)

    def _why(self, task: Task, wanted: str, dictionary: Mapping[str, Any]) -> tuple[str, ...]:
        last = self.project.last(task)
        if last is not None and last.key == wanted:
            return ("it failed last time",) if last.failed else ("its result is no longer in the store",)
        old = None if last is None else last.dictionary
        return explain(old, dictionary, task, self.project.store.read)

    def _published(self, item: Publish) -> str | None:
        try:
            return self.project.digests.digest(self.project.path(item.path))
        except OSError:
            return None  # absent, or a folder or link in its place: to be put right

    def _state(self, item: Publish) -> str:
        """What is wrong with a published file; where the store knows its bytes, no person changed it."""
        digest = self._published(item)
        if digest is not None and self.project.store.has(digest):
            return "holds what another build wrote"
        return "was changed" if self.project.path(item.path).exists() else "is missing"


def assess(project: Project, tasks: Sequence[Task]) -> tuple[Probe, ...]:
    """What a build of ``tasks`` (in topological order) would do; nothing is run or written.

    Raises the first task's BuildError with the faults of all tasks.
    """
    prober = Prober(project, tasks)
    probes: list[Probe] = []
    errors: list[BuildError] = []
    for task in tasks:
        try:
            probes.append(prober.probe(task))
        except BuildError as error:
            errors.append(error)
            prober.note(task, None)
        else:
            prober.note(task, probes[-1].record)
    if errors:
        raise type(errors[0])(*dict.fromkeys(fault for error in errors for fault in error.faults))
    return tuple(probes)


def _outputs(task: Task) -> list[Output]:
    return [item for items in task.inputs.values() for item in items if isinstance(item, Output)]


def _unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, IsADirectoryError):
        return "a folder stands where a file belongs"
    return f"the file cannot be read: {error.strerror}"
