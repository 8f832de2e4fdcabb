"""Pipeline: one stage with its parameters and inputs, as frozen data. No I/O.

Tasks of different targets that would do the same work get the same id and merge into one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from npubake.pipeline.key import canonical
from npubake.pipeline.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of the project; ``path`` is relative to the project, or absolute. Its artifact type is ``file``."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Bytes that the plan itself made, such as a data set's listing; ``label`` names them for people."""

    data: bytes
    label: str
    type: str = "listing"

    @property
    def digest(self) -> str:
        """Hex sha256 of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What another task makes: its id and the output port."""

    task: str
    port: str


Input = SourceFile | Literal | Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Copy the output ``port`` to ``path`` (relative to the project) once the task has succeeded."""

    port: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work.

    params: JSON values; those at their default are left out by the plan. after: tasks that must have succeeded before,
    never part of the key (a gate before ``compile``). targets: who asked for it. role: its stable name within a target,
    by which explain finds the last dictionary (the stage's name, unless a stage appears more than once in a target).
    """

    id: str
    stage: Stage
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[Input, ...]] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    publish: tuple[Publish, ...] = ()
    role: str = ""

    @property
    def name(self) -> str:
        """The role, or the stage's name."""
        return self.role or self.stage.name

    def predecessors(self) -> tuple[str, ...]:
        """Ids of the tasks that must be done before this one, each once."""
        makers = (item.task for port in self.inputs.values() for item in port if isinstance(item, Output))
        return tuple(dict.fromkeys((*makers, *self.after)))


def task_id(
    stage: Stage, params: Mapping[str, Any], inputs: Mapping[str, tuple[Input, ...]], after: tuple[str, ...] = ()
) -> str:
    """``<stage>-<12 hex>`` of the static identity: stage, parameters, where each input comes from, what must precede.

    What must precede is part of it so that a gate that fails in one target never holds up another target.
    """
    identity = {
        "stage": stage.name,
        "params": params,
        "inputs": {port: [_identity(item) for item in items] for port, items in inputs.items()},
        "after": sorted(after),
    }
    return f"{stage.name}-{hashlib.sha256(canonical(identity)).hexdigest()[:12]}"


def merge(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """One task for each id, with the targets and published files of all; in the order of first appearance."""
    merged: dict[str, Task] = {}
    for task in tasks:
        known = merged.get(task.id)
        if known is not None:
            task = replace(
                known,
                targets=tuple(dict.fromkeys((*known.targets, *task.targets))),
                publish=tuple(dict.fromkeys((*known.publish, *task.publish))),
            )
        merged[task.id] = task
    return tuple(merged.values())


def _identity(item: Input) -> list[str]:
    match item:
        case SourceFile(path=path):
            return ["file", path]
        case Literal():
            return ["literal", item.type, item.digest]
        case Output(task=task, port=port):
            return ["output", task, port]
