"""Plan room: the tasks that read one example of each data set, so that data which do not fit are refused in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from npubake.pipeline.task import Task, task_id

_READERS = ("samples", "measure_inputs")


def first_examples(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """For each task that reads a data set one that reads its first example, under a role of its own."""
    return tuple(_first(task) for task in tasks if task.stage.name in _READERS)


def _first(task: Task) -> Task:
    params = {name: value for name, value in task.params.items() if name != "count"} | {"first": True}
    name = task_id(task.stage, params, task.inputs, task.after)
    return replace(task, id=name, params=params, publish=(), role=f"{task.name} first")
