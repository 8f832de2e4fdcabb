"""Command line room: one function a command: arguments -> one call -> print -> exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from npubake.cli import root
from npubake.errors import Fault, UsageError
from npubake.nearest import did_you_mean
from npubake.request import Outcome, Request

if TYPE_CHECKING:
    from npubake.pipeline.freshness import Probe
    from npubake.pipeline.task import Task
    from npubake.preparation import Prepared
    from npubake.recipe.lock import Policy

WORK_TO_DO = 3


def run_build(arguments: argparse.Namespace) -> int:
    """``npubake build``."""
    from npubake.build import at_rest, build

    place = root.find(arguments.directory)
    request = request_of(arguments)
    settled = at_rest(place, request)
    if settled is not None:
        return _show_outcome(settled, arguments)
    from npubake.cli.progress import listener

    with listener(quiet=arguments.quiet) as shown:
        return _show_outcome(build(place, request, shown), arguments)


def run_check(arguments: argparse.Namespace) -> int:
    """``npubake check``."""
    from npubake.build import check
    from npubake.cli.progress import listener

    place = root.find(arguments.directory)
    with listener(quiet=arguments.quiet) as shown:
        outcome = check(place, request_of(arguments), shown)
    if arguments.json:
        _print_json({**outcome.summary, "faults": [asdict(fault) for fault in outcome.faults]})
    elif outcome.exit_code == 0:
        names = ", ".join(outcome.summary["targets"])
        print(f"{names}: nothing to refuse")
    return _tell(outcome)


def _show_outcome(outcome: Outcome, arguments: argparse.Namespace) -> int:
    from npubake.report.tables import build_text

    if arguments.json:
        _print_json({**outcome.summary, "faults": [asdict(fault) for fault in outcome.faults]})
    else:
        print(build_text(outcome.summary, verbose=arguments.verbose))
    return _tell(outcome)


def _tell(outcome: Outcome) -> int:
    """Notes, warnings and faults on standard error; the exit code."""
    for note in outcome.notes:
        print(note, file=sys.stderr)
    for warning in outcome.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for fault in outcome.faults:
        print(fault, file=sys.stderr)
    return outcome.exit_code


def run_plan(arguments: argparse.Namespace) -> int:
    """``npubake plan``."""
    from npubake.build import assess
    from npubake.cli.text import plan_text

    if arguments.graph and (arguments.json or arguments.layers):
        hint = "Ask for one of the two; the JSON lists each task with its id."
        what = "--graph prints a picture's source, not an object or a table"
        raise UsageError(Fault(what=what, where="--graph", hint=hint))
    if arguments.match and not arguments.layers:
        raise UsageError(Fault(what="--match chooses among layers", where="--match", hint="Add --layers."))
    prepared, probes = assess(root.find(arguments.directory), request_of(arguments))
    if arguments.layers:
        return _show_layers(prepared, probes, arguments)
    code = WORK_TO_DO if arguments.check and any(probe.outcome != "reuse" for probe in probes) else 0
    if arguments.graph:
        from npubake.pipeline.graph import to_dot, to_mermaid

        print((to_mermaid if arguments.graph == "mermaid" else to_dot)(prepared.tasks), end="")
        return code
    tasks = [
        {
            "task": probe.task.id,
            "stage": probe.task.stage.name,
            "role": probe.task.name,
            "key": probe.key,
            "outcome": probe.outcome,
            "reasons": list(probe.reasons),
            "targets": list(probe.task.targets),
        }
        for probe in probes
    ]
    targets = {
        subject.name: {
            "platform": subject.target.platform.name,
            "toolchain": subject.target.toolchain,
            "lane": subject.target.lane.value,
            "lane_decided_by": subject.target.lane.decided_by,
        }
        for subject in prepared.subjects
    }
    if arguments.json:
        _print_json({"targets": targets, "tasks": tasks, "warnings": list(prepared.warnings)})
    else:
        print(plan_text(targets, tasks))
        for warning in prepared.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return code


def _show_layers(prepared: Prepared, probes: Sequence[Probe], arguments: argparse.Namespace) -> int:
    """``npubake plan --layers``."""
    from npubake.cli.layers import layers_of, layers_text

    found = layers_of(prepared, probes, arguments.match or "*")
    if arguments.json:
        _print_json({"layers": found})
    else:
        print(layers_text(found))
    return 0


def run_explain(arguments: argparse.Namespace) -> int:
    """``npubake explain``."""
    from npubake.build import assess

    _, probes = assess(root.find(arguments.directory), request_of(arguments))
    _know_stage(arguments.stage, [probe.task for probe in probes])
    wanted = [
        probe
        for probe in probes
        if probe.outcome != "reuse" and arguments.stage in (None, probe.task.stage.name, probe.task.name)
    ]
    if arguments.json:
        rows = [
            {"task": p.task.id, "stage": p.task.stage.name, "outcome": p.outcome, "reasons": list(p.reasons)}
            for p in wanted
        ]
        _print_json({"tasks": rows})
        return 0
    for probe in wanted:
        print(f"{probe.task.name} ({', '.join(probe.task.targets)}): {probe.outcome}")
        for reason in probe.reasons:
            print(f"    {reason}")
    if not wanted:
        print("nothing to explain: everything is up to date")
    return 0


def _know_stage(stage: str | None, tasks: Sequence[Task]) -> None:
    """Raises UsageError for a stage that no task of the plan has."""
    known = {name for task in tasks for name in (task.stage.name, task.name)}
    if stage is not None and stage not in known:
        raise UsageError(Fault(what=f"there is no stage {stage!r}", where="--stage", hint=did_you_mean(stage, known)))


def run_status(arguments: argparse.Namespace) -> int:
    """``npubake status``."""
    from npubake.build import assess
    from npubake.cli.text import status_text

    prepared, probes = assess(root.find(arguments.directory), request_of(arguments), lenient=True)
    rows = {
        subject.name: _standing(prepared, subject.name, [p for p in probes if subject.name in p.task.targets])
        for subject in prepared.subjects
    }
    for entry in prepared.refused:  # what would be done is not known without its tools
        known = _standing(prepared, entry.subject.name, ())
        needs = [f"{fault.what} ({fault.hint})" for fault in entry.error.faults]
        rows[entry.subject.name] = {**known, "current": False, "needs": needs}
    if arguments.json:
        _print_json({"targets": rows})
    else:
        print(status_text(rows))
    return 0


def _standing(prepared: Prepared, target: str, probes: Sequence[Probe]) -> dict[str, Any]:
    """A target's last good build, the failure of its last build (unless nothing is left to do), what would be done."""
    from npubake import released

    last = released.find(prepared.project.root / "build" / target)
    torn = [probe.task.name for probe in probes if probe.outcome == "restore" and _lacks_own(probe, target)]
    undone = [probe.task.name for probe in probes if probe.outcome in ("run", "unknown")]
    current = last is not None and not torn and not undone
    failed = () if current else prepared.project.failed(target)
    return {
        "current": current,
        "to_run": undone,
        "to_restore": torn,
        "failed": [probe.task.name for probe in probes if probe.task.name in failed],
        "manifest": f"build/{target}/manifest.json" if last else None,
        "bundle": last.bundle if last else None,
        "finished": last.finished if last else None,
        "gates": list(last.gates) if last else [],
        "astray": list(last.astray) if last else [],
    }


def _lacks_own(probe: Probe, target: str) -> bool:
    """Of a task that targets share, files of others may be all that is to be put in place."""
    return any(reason.startswith(f"build/{target}/") for reason in probe.reasons)


def request_of(arguments: argparse.Namespace) -> Request:
    """The request in the words of the command line; ``recipe=NAME`` is a name too, other variables are refused."""
    policy: Policy = "plain"
    if getattr(arguments, "locked", False):
        policy = "locked"
    elif getattr(arguments, "update_lock", False):
        policy = "update"
    return Request(
        names=names_of(arguments.names),
        toolchain=arguments.toolchain,
        until=getattr(arguments, "until", None) or "",
        fast=arguments.fast,
        policy=policy,
        keep_going=getattr(arguments, "keep_going", False),
        jobs=getattr(arguments, "jobs", 1),
        threads=getattr(arguments, "threads", 0),
    )


def names_of(words: Sequence[str]) -> tuple[str, ...]:
    """``recipe=a,b`` and ``a,b`` alike. Raises UsageError for another variable, or an empty name."""
    names: list[str] = []
    for word in words:
        variable, separator, value = word.partition("=")
        if separator and variable != "recipe":
            raise UsageError(
                Fault(what=f"unknown variable {variable!r}", where=word, hint=f"Did you mean recipe={value}?")
            )
        found = [name.strip() for name in (value if separator else word).split(",")]
        if not all(found):
            hint = "Is a shell variable unset? Leave the argument out to mean all recipes."
            raise UsageError(Fault(what="an empty recipe name", where=repr(word), hint=hint))
        names += found
    return tuple(dict.fromkeys(names))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))
