"""Pipeline: doit's own door: ``doit build recipe=NAME`` at a project's root, by ``[tool.doit]`` of its pyproject.toml.

The loader asks a *planner* for the tasks; it is found by import string (``[tool.doit] planner``, else ``PLANNER``),
since recipes are above this room. In: the command line's variables. Out: doit tasks. Refusals end with their exit code.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from doit import doit_cmd
from doit.cmd_base import TaskLoader2
from doit.reporter import ZeroReporter
from doit.task import Task as DoitTask
from doit.task import dict_to_task

from npubake.errors import BuildError, Fault, UsageError
from npubake.nearest import nearest
from npubake.pipeline.nothing_db import NothingDB

if TYPE_CHECKING:  # a build with nothing to do needs none of them
    from npubake.pipeline.project import Project
    from npubake.pipeline.runrecord import Listener, RunRecord
    from npubake.pipeline.session import Session
    from npubake.pipeline.task import Task

__all__ = ["NothingDB", "Planned", "Planner", "RecipeLoader"]

PLANNER = "npubake.cli.doit_door:planner"
_INTERRUPTED = 130  # the shell's code for SIGINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A planner's answer: tasks in topological order, with what to do and say about them.

    finish: called once with what was done; writes manifests, returns the text to print. listener: shown the build as it
    goes, or None.
    """

    project: Project
    tasks: Sequence[Task] = ()
    finish: Callable[[RunRecord], str] = lambda _: ""
    listener: Listener | None = None
    threads: int = 1


class Planner(Protocol):
    """Makes the plan for doit. ``variables``: the names allowed in ``NAME=VALUE``, the first one names the targets."""

    @property
    def variables(self) -> Sequence[str]:
        """The names that the command line may set."""

    def __call__(self, root: Path, variables: Mapping[str, str], *, build: bool) -> Planned | str:
        """Plan for the project at ``root``; the text to print where nothing is to be done, which only a request that is
        built whole (``build``) may be answered with.

        Raises BuildError, such as UsageError for a recipe that does not exist.
        """


class RecipeLoader(TaskLoader2):  # type: ignore[misc]
    """Loads npubake's tasks into doit: one for each task, one for each target, and ``build`` for all."""

    cmd_options = ()

    def __init__(self) -> None:
        super().__init__()
        if "" in sys.argv[1:]:  # doit itself would fail on it, before it asks for tasks
            _end(
                UsageError(Fault(what="an empty argument", hint="is a shell variable unset? (doit build recipe=NAME)"))
            )
        self._reporter = SessionReporter()

    def setup(self, opt_values: Mapping[str, Any]) -> None:
        """Nothing to set up."""

    def load_doit_config(self) -> dict[str, Any]:
        """Our defaults: no database, threads (sessions are shared), our reporter."""
        return {
            "backend": "nothing",
            "par_type": "thread",
            "verbosity": 2,
            "default_tasks": ["build"],
            "reporter": self._reporter,
        }

    def load_tasks(self, cmd: Any, pos_args: Sequence[str]) -> list[DoitTask]:
        """The tasks of what the command line asks for."""
        try:
            return self._load(cmd, pos_args)
        except BuildError as error:
            _end(error)

    def _load(self, cmd: Any, pos_args: Sequence[str]) -> list[DoitTask]:
        planner = _find_planner((self.config or {}).get("GLOBAL", {}).get("planner", PLANNER))
        variables = dict(doit_cmd._CMDLINE_VARS or {})
        _check_variables(variables, planner.variables)
        build = bool(cmd.execute_tasks) and set(pos_args) <= {"build"}
        planned = planner(Path.cwd(), variables, build=build)
        if isinstance(planned, str):
            self._reporter.settle(planned)
            return [_group("build", [], "nothing to do")]
        from npubake.pipeline.session import Session

        session = Session(planned.project, planned.tasks, threads=planned.threads, listener=planned.listener)
        if cmd.execute_tasks:
            self._reporter.begin(session, planned.finish)
        return _all_tasks(session, self._reporter.bugs)


class SessionReporter(ZeroReporter):  # type: ignore[misc]
    """Opens and ends the session around doit's run, and prints what ``finish`` says. The listener shows the rest."""

    desc = "npubake's own"

    def __init__(self) -> None:
        super().__init__(sys.stdout, {})
        self.bugs: list[Exception] = []
        self._session: Session | None = None
        self._finish: Callable[[RunRecord], str] = lambda _: ""
        self._text = ""

    def settle(self, text: str) -> None:
        """Nothing is to be done: only print ``text``."""
        self._text = text

    def begin(self, session: Session, finish: Callable[[RunRecord], str]) -> None:
        """A run of ``session`` is about to start."""
        self._session, self._finish = session, finish

    def initialize(self, tasks: object, selected_tasks: object) -> None:  # noqa: ARG002 - doit's signature
        """doit starts to run tasks."""
        if self._session is not None:
            self._session.__enter__()

    def complete_run(self) -> None:
        """doit has ended, whatever the outcome."""
        record = None
        if self._session is not None:
            interrupted = sys.exc_info()[0]
            self._session.__exit__(None, None, None)
            if self.bugs:
                raise self.bugs[0]
            if interrupted is KeyboardInterrupt:
                sys.stderr.write("interrupted; finished stages are kept\n")
                raise SystemExit(_INTERRUPTED)
            if interrupted is not None:
                return
            record = self._session.record()
            try:
                self._text = self._finish(record)
            except BuildError as error:
                _end(error)
        if self._text:
            self.write(self._text if self._text.endswith("\n") else f"{self._text}\n")
        codes = [result.error.exit_code for result in record.failures if result.error] if record else []
        if max(codes, default=1) > 1:
            raise SystemExit(max(codes))  # doit itself would end with 1


def _all_tasks(session: Session, bugs: list[Exception]) -> list[DoitTask]:
    from npubake.pipeline.scheduler import doit_tasks

    tasks = doit_tasks(session, bugs, group="build", show=lambda path: _shown(session, path))
    targets = list(dict.fromkeys(target for task in session.tasks for target in task.targets))
    for target in targets:
        mine = [task.id for task in session.tasks if target in task.targets]
        tasks.append(_group(target, mine, f"build {target} ({len(mine)} tasks)"))
    return [
        *tasks,
        _group("build", [task.id for task in session.tasks], "build all targets, or those of recipe=NAME,…"),
    ]


def _shown(session: Session, path: str) -> str:
    full = session.project.path(path)
    here = Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(full)


def _group(name: str, members: list[str], text: str) -> DoitTask:
    return dict_to_task({"name": name, "actions": None, "task_dep": members, "doc": text})


def _find_planner(reference: str) -> Planner:
    module, _, name = reference.partition(":")
    planner: Planner = getattr(importlib.import_module(module), name)
    return planner


def _check_variables(variables: Mapping[str, str], known: Sequence[str]) -> None:
    """Raises UsageError with every variable that is unknown or empty; doit itself would ignore them, and build all."""
    faults = []
    for name, value in variables.items():
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near[0]}={value}?" if near else f"known: {', '.join(f'{n}=' for n in known)}"
            faults.append(Fault(what=f"unknown variable {name!r}", where=f"{name}={value}", hint=hint))
        elif not value.strip(", "):
            faults.append(Fault(what=f"{name}= is empty", hint="is a shell variable unset? leave it out to mean all"))
    if faults:
        raise UsageError(*faults)


def _end(error: BuildError) -> NoReturn:
    sys.stderr.write(f"{error}\n")
    raise SystemExit(error.exit_code)
