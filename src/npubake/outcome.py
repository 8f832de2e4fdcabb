"""From what was done to what is said of it: summary, exit code, faults and warnings. Reads the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from npubake import released
from npubake.errors import BuildError
from npubake.pipeline.runrecord import RunRecord, TaskResult
from npubake.plan.subject import Subject
from npubake.preparation import Prepared
from npubake.report.manifest import BOARD_METRICS, UNMEASURED
from npubake.request import Outcome

# Where a stage says what a person should look at.
_WARNING_PORTS = {"check": "report", **dict.fromkeys(("calibrate", "tune", "quantize", "adapt"), "record")}


def outcome(prepared: Prepared, record: RunRecord, moved: Mapping[str, str]) -> Outcome:
    """The summary and exit code of a build: the gravest of its failures' codes, a mistake in what was asked first.

    moved: published files that were set aside, old path -> new path.
    """
    refused = [entry.error for entry in prepared.refused]
    failures = [*refused, *(_placed(prepared, result) for result in record.failures)]
    every = (*prepared.subjects, *(entry.subject for entry in prepared.refused))
    return Outcome(
        summary={
            "targets": {subject.name: target_summary(prepared, subject, record, moved) for subject in every},
            "tasks": record.to_json(),
            "seconds": round(record.seconds, 3),
        },
        exit_code=_exit_code(failures),
        faults=tuple(dict.fromkeys(fault for error in failures for fault in error.faults)),
        notes=prepared.notes,
        warnings=(
            *prepared.warnings,
            *_record_warnings(prepared, record),
            *_gate_warnings(prepared, record),
            *_still_standing(prepared, record, moved),
        ),
    )


def _placed(prepared: Prepared, result: TaskResult) -> BuildError:
    """The task's error; a fault that knows its place in the recipe by path gets the file and line."""
    assert result.error is not None
    target = next(subject.target for subject in prepared.subjects if subject.name in result.task.targets)
    faults = [
        replace(fault, path=path, where=target.recipe.where(path)) if fault.path.startswith("$") else fault
        for fault, path in ((fault, target.place(fault.path)) for fault in result.error.faults)
    ]
    return type(result.error)(*faults)


def _exit_code(failures: Iterable[BuildError]) -> int:
    codes = {error.exit_code for error in failures}
    return max(codes, default=0)


def target_summary(
    prepared: Prepared, subject: Subject, record: RunRecord, moved: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """One target: manifest path, gates, product metrics, artifacts, and how it was built."""
    mine = [result for result in record.results if subject.name in result.task.targets]
    whole = all(result.record is not None for result in mine) and _released(mine)
    return {
        "manifest": f"build/{subject.name}/manifest.json" if whole else None,
        "gates": list(_gates(prepared, mine)),
        "tuning": list(_trials(prepared, mine)),
        "metrics": {**product_metrics(prepared, mine), **dict.fromkeys(BOARD_METRICS if whole else (), UNMEASURED)},
        "artifacts": [
            {"path": moved.get(item.path, item.path), "bytes": result.outputs[item.port].size}
            for result in mine
            for item in result.task.publish
            if result.outputs and item.path.startswith(f"build/{subject.name}/") and "/figures/" not in item.path
        ],
        "platform": subject.target.platform.name,
        "toolchain": subject.target.toolchain,
        "lane": subject.target.lane.value,
        "lane_decided_by": subject.target.lane.decided_by,
        "deployable": not subject.fast and subject.target.recipe.calibration.purpose == "release",
    }


def _released(results: Iterable[TaskResult]) -> bool:
    """Whether the road was gone to its end: on every road the task of this role makes the bundle."""
    return any(result.task.name == "package" for result in results)


def _trials(prepared: Prepared, results: Iterable[TaskResult]) -> Iterable[dict[str, Any]]:
    """What ``tune`` tried."""
    for result in results:
        if result.task.stage.name == "tune" and result.outputs:
            yield from read_json(prepared, result, "record").get("tuning", {}).get("trials", ())


def _gates(prepared: Prepared, results: Iterable[TaskResult]) -> Iterable[dict[str, Any]]:
    for result in results:
        if result.task.stage.name != "gate":
            continue
        if result.outputs:
            yield from read_json(prepared, result, "verdict")
        elif result.error is not None:
            yield from _failed_checks(result.task.params["boundary"], result.error)


def _failed_checks(boundary: str, error: BuildError) -> Iterable[dict[str, Any]]:
    """A failed gate's checks in the form of a verdict; those that failed say why. One row without figures where the
    gate failed before it could judge.
    """
    fault = error.faults[0]
    unknown = {"boundary": boundary, "output": "", "figure": "", "value": None, "threshold": None, "passed": False}
    for check in error.facts.get("checks") or [{**unknown, "warning": "", "detail": None}]:
        yield check if check["passed"] else {**check, "what": fault.what, "hint": fault.hint}


def product_metrics(prepared: Prepared, results: Iterable[TaskResult]) -> dict[str, dict[str, float]]:
    """The product metric of the float and of the quantised model: ``{metric: {float, quantized}}``."""
    found: dict[str, dict[str, float]] = {}
    for result in results:
        if result.task.stage.name == "measure_product" and result.outputs:
            figures = read_json(prepared, result, "figures")
            kind = result.task.name.partition(" ")[2]
            found.setdefault(figures["metric"], {})[kind] = figures["value"]
    return found


def read_json(prepared: Prepared, result: TaskResult, port: str) -> Any:
    """An output that is JSON, from the store."""
    data = prepared.project.store.read(result.outputs[port].digest)
    return json.loads(data) if data is not None else {}


def _record_warnings(prepared: Prepared, record: RunRecord) -> Iterable[str]:
    """What stages saw that a person should look at, each sentence once of the same targets, by the first that says it;
    ``tune`` repeats what ``calibrate`` says.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    tuned = {
        target
        for result in record.results
        if result.task.stage.name == "tune" and result.outputs
        for target in result.task.targets
    }
    for result in record.results:
        port = _WARNING_PORTS.get(result.task.stage.name)
        if result.task.stage.name == "calibrate" and tuned.issuperset(result.task.targets):
            continue
        if port is not None and result.outputs:
            for sentence in read_json(prepared, result, port).get("warnings", ()):
                said, targets = found.setdefault(sentence, {}), frozenset(result.task.targets)
                if not any(targets <= known for known in said.values()):
                    said[result.task.name] = said.get(result.task.name, frozenset()) | targets
    return [f"{name}: {sentence}" for sentence, said in found.items() for name in said]


def _gate_warnings(prepared: Prepared, record: RunRecord) -> Iterable[str]:
    for result in record.results:
        if result.task.stage.name == "gate" and result.outputs:
            verdict: list[Mapping[str, Any]] = read_json(prepared, result, "verdict")
            yield from (f"gate {check['boundary']}: {check['warning']}" for check in verdict if check["warning"])


def _still_standing(prepared: Prepared, record: RunRecord, moved: Mapping[str, str]) -> Iterable[str]:
    """Which released artifact stays in place for a target that failed, and which files beside it are not its own."""
    failed = {target for result in record.failures for target in result.task.targets}
    refused = [entry.subject for entry in prepared.refused]
    for subject in (*prepared.subjects, *refused):
        if subject.name not in failed and subject not in refused:
            continue
        folder = prepared.project.root / "build" / subject.name
        bundle, last = f"build/{subject.name}/{subject.name}.bundle", released.find(folder)
        if (prepared.project.root / bundle).exists():
            text = f"{subject.name} failed; the last good bundle stays in place: {bundle}"
            if any(path.startswith(f"build/{subject.name}/") for path in moved):
                text += f"; what this build made instead is in build/{subject.name}/failed/"
            yield f"{text}; {released.astray_text(last.astray)}" if last and last.astray else text
