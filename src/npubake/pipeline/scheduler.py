"""Pipeline: orders a build with doit: what may start when, what a failure holds up. Tasks in, a run record out.

This module and ``doit_loader`` alone know doit. doit decides the order and nothing else: its database stores nothing,
and every question about freshness goes to the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from doit.control import TaskControl
from doit.dependency import Dependency, JSONCodec, MD5Checker
from doit.reporter import ZeroReporter
from doit.runner import MThreadRunner, Runner
from doit.task import Stream, dict_to_task
from doit.task import Task as DoitTask

from npubake.errors import Fault, UsageError
from npubake.pipeline.nothing_db import NothingDB
from npubake.pipeline.project import Project
from npubake.pipeline.runrecord import Listener, RunRecord
from npubake.pipeline.session import Session
from npubake.pipeline.task import Task


class IsCurrent:
    """doit's ``uptodate`` callable of one task; prints as the reasons (``doit info``)."""

    def __init__(self, session: Session, task: Task) -> None:
        self._session = session
        self._task = task

    def __call__(self) -> bool:
        return self._session.is_current(self._task.id)

    def __repr__(self) -> str:
        return "; ".join(self._session.probe(self._task.id).reasons) or "current"


class Perform:
    """doit's action of one task. What is no refusal is a bug of ours: kept, and raised when doit has ended."""

    def __init__(self, session: Session, task: Task, bugs: list[Exception]) -> None:
        self._session = session
        self._task = task
        self._bugs = bugs

    def __call__(self) -> bool:
        try:
            return self._session.perform(self._task.id)
        except Exception as bug:  # the scheduler's one boundary
            self._bugs.append(bug)
            raise


def doit_tasks(
    session: Session, bugs: list[Exception], *, group: str | None = None, show: Callable[[str], str] | None = None
) -> list[DoitTask]:
    """One doit task for each of the session's tasks, in their order; subtasks of ``group`` if it is given.

    show: how a published path is written for people; with it the files are doit's targets too (``doit info, clean``).
    """
    tasks = []
    for task in session.tasks:
        made = dict_to_task(
            {
                "name": task.id,
                "actions": [Perform(session, task, bugs)],
                "uptodate": [IsCurrent(session, task)],
                "task_dep": list(task.predecessors()),
                "doc": f"{task.name} of {', '.join(task.targets)}",
                "targets": [show(item.path) for item in task.publish] if show else [],
                "clean": True,
                "io": {"capture": False},  # capturing would replace sys.stdout for all threads
            }
        )
        made.subtask_of = group
        tasks.append(made)
    return tasks


def execute(
    project: Project,
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    threads: int = 1,
    keep_going: bool = False,
    listener: Listener | None = None,
) -> RunRecord:
    """Bring all ``tasks`` (in topological order) up to date and say what was done.

    jobs: tasks at a time; threads: for each task. A failure holds up its successors, with ``keep_going`` nothing else.
    Refusals are in the record's ``failures``; a bug of the engine is raised. An interrupt ends all workers at once.
    """
    if jobs < 1 or threads < 1:
        raise UsageError(Fault(what=f"jobs and threads are at least 1, found {jobs} and {threads}"))
    bugs: list[Exception] = []
    with Session(project, tasks, threads=threads, listener=listener) as session:
        control = TaskControl(doit_tasks(session, bugs))
        control.process(None)
        database = Dependency(NothingDB, "", checker_cls=MD5Checker, codec_cls=JSONCodec)
        reporter = ZeroReporter(None, {})
        settings = (database, reporter, keep_going, False, Stream(0))
        runner = Runner(*settings) if jobs == 1 else MThreadRunner(*settings, num_process=jobs)
        runner.run_all(control.task_dispatcher())
        if bugs:
            raise bugs[0]
        return session.record()
