"""The top file: load, plan, run, say what was made. A request in; an outcome out, as plain data.

A request that is settled (nothing it reads or made has changed) is answered from a few stats, before anything heavy is
imported; everything else goes through the plan, and the store decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npubake.pipeline import settled
from npubake.request import Outcome, Request

if TYPE_CHECKING:
    from npubake.pipeline.freshness import Probe
    from npubake.pipeline.runrecord import Listener, RunRecord
    from npubake.pipeline.task import Task
    from npubake.preparation import Prepared


_REFUSING = ("check", "probe")  # stages whose only work is to refuse, before any effort


def at_rest(root: Path, request: Request) -> Outcome | None:
    """The outcome of a request that is settled, by a few stats; None where a plan must be made."""
    known = None if request.policy == "update" else settled.check(root, request.identity())
    return None if known is None else Outcome(summary=known["summary"], warnings=tuple(known["warnings"]), settled=True)


def build(root: Path, request: Request, listener: Listener | None = None) -> Outcome:
    """Bring every target of the request up to date. Raises BuildError for what is wrong before any task runs."""
    from npubake.preparation import prepare

    prepared = prepare(root, request)
    record = _run(prepared, request, listener)
    return finish(prepared, request, record)


def check(root: Path, request: Request, listener: Listener | None = None) -> Outcome:
    """Only what finds refusals without inference: ``import``, ``optimize``, ``check`` and (of a vendor's compiler)
    ``probe`` of every target, and the first example of each data set. No lock is written.
    """
    from npubake.manifests import set_aside
    from npubake.outcome import outcome
    from npubake.pipeline.scheduler import execute
    from npubake.plan.trial import first_examples
    from npubake.preparation import prepare

    prepared = prepare(root, request, write_lock=False)
    first = (*_checked_first(prepared.tasks), *first_examples(prepared.tasks))
    record = execute(
        prepared.project, first, jobs=request.jobs, threads=request.workers, keep_going=True, listener=listener
    )
    return outcome(prepared, record, set_aside(prepared, record))


def assess(root: Path, request: Request, *, lenient: bool = False) -> tuple[Prepared, tuple[Probe, ...]]:
    """What a build would do, task by task; nothing is run or written. lenient: see ``prepare``."""
    from npubake.pipeline.freshness import assess as probe_all
    from npubake.preparation import prepare

    prepared = prepare(root, request, write_lock=False, lenient=lenient)
    return prepared, probe_all(prepared.project, prepared.tasks)


def finish(prepared: Prepared, request: Request, record: RunRecord) -> Outcome:
    """Write manifests of targets that are whole, put the others' folders right, note what is settled, and sum up."""
    from npubake.manifests import set_aside, write_manifests
    from npubake.outcome import outcome

    manifests = write_manifests(prepared, record)
    result = outcome(prepared, record, set_aside(prepared, record))
    if result.exit_code == 0:
        for path in manifests:
            prepared.seen.wrote(path)
        summary = {**result.summary, "tasks": [_resting(task) for task in result.summary["tasks"]]}
        resting = {"summary": summary, "warnings": result.warnings}
        settled.write(prepared.project, request.identity(), prepared.tasks, record, prepared.seen, resting)
    return result


def _run(prepared: Prepared, request: Request, listener: Listener | None) -> RunRecord:
    """All refusals of all targets first; then the rest, if there are none, or (``keep_going``) what they leave."""
    from npubake.pipeline.scheduler import execute

    run = partial(execute, prepared.project, jobs=request.jobs, threads=request.workers, listener=listener)
    first = _checked_first(prepared.tasks)
    if sum(task.stage.name in _REFUSING for task in first) < 2:
        return run(prepared.tasks, keep_going=request.keep_going)
    record = run(first, keep_going=True)
    if record.failures and not request.keep_going:
        return record
    refused = {target for result in record.failures for target in result.task.targets}
    rest = [task for task in prepared.tasks if not refused.issuperset(task.targets)]
    return run(rest, keep_going=request.keep_going).after(record)


def _checked_first(tasks: Sequence[Task]) -> tuple[Task, ...]:
    from npubake.pipeline.graph import needed_for

    return needed_for(tasks, [task.id for task in tasks if task.stage.name in _REFUSING])


def _resting(task: Mapping[str, Any]) -> dict[str, Any]:
    return {**task, "outcome": "reused", "seconds": 0.0, "reasons": []}
