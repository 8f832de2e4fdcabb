"""Command line room: what doit's own command line asks for tasks, and the text it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from npubake.build import at_rest, finish
from npubake.pipeline.doit_loader import Planned
from npubake.report.tables import build_text
from npubake.request import Outcome, Request

if TYPE_CHECKING:
    from npubake.pipeline.runrecord import RunRecord


class DoitDoor:
    """``pipeline.doit_loader.Planner``: ``doit build recipe=NAME`` at the root of a project."""

    variables = ("recipe", "toolchain")

    def __call__(self, root: Path, variables: Mapping[str, str], *, build: bool) -> Planned | str:
        """The plan of ``recipe=`` (of all recipes without it); the last summary where there is nothing to do."""
        names = tuple(name.strip() for name in variables["recipe"].split(",")) if "recipe" in variables else ()
        request = Request(names=names, toolchain=variables.get("toolchain"))
        settled = at_rest(root, request) if build else None
        if settled is not None:
            return _text(settled)
        return _planned(root, request, write_lock=build)


def _planned(root: Path, request: Request, *, write_lock: bool) -> Planned:
    from npubake.cli.progress import listener
    from npubake.preparation import prepare

    prepared = prepare(root, request, write_lock=write_lock, lenient=not write_lock)

    def end(record: RunRecord) -> str:
        return _text(finish(prepared, request, record))

    shown = listener(quiet=False, bars=False)
    return Planned(project=prepared.project, tasks=prepared.tasks, finish=end, listener=shown, threads=request.workers)


def _text(outcome: Outcome) -> str:
    lines = [build_text(outcome.summary), *outcome.notes, *(f"warning: {warning}" for warning in outcome.warnings)]
    return "\n".join([*lines, *map(str, outcome.faults)])


planner = DoitDoor()
