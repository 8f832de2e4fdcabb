"""Command line room: ``what-if``, what each tensor of a target would lose to every method. Reads the store alone."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from npubake.cli import root
from npubake.cli.commands import request_of
from npubake.cli.findings import findings_text
from npubake.cli.parser import METHODS
from npubake.cli.text import table
from npubake.errors import Fault, UsageError
from npubake.nearest import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from npubake.pipeline.freshness import Probe
    from npubake.pipeline.task import Task
    from npubake.plan.subject import Subject
    from npubake.preparation import Prepared
    from npubake.quant.what_if import Forecast
    from npubake.recipe.recipe import Recipe

_ROWS = 20  # of a table, unless tensors are chosen
FOUND = 1


def run_what_if(arguments: argparse.Namespace) -> int:
    """``npubake what-if``: forecasts and findings of each target; with --strict 1 where something is found."""
    from npubake.build import assess

    prepared, probes = assess(root.find(arguments.directory), request_of(arguments))
    asked, notes = _calibrated(prepared.subjects, [probe.task for probe in probes])
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    answers = {subject.name: _answer(prepared, probes, subject) for subject in asked}
    pattern = arguments.tensor or "*"
    tensors = {row["tensor"] for answer in answers.values() for row in answer["tensors"]}
    if not any(fnmatchcase(name, pattern) for name in tensors):
        hint = did_you_mean(pattern, tensors) or "A tensor's name, with * and ?."
        raise UsageError(Fault(what=f"{pattern!r} matches no tensor", where="--tensor", hint=hint))
    for answer in answers.values():
        for part in ("tensors", "findings"):
            answer[part] = [row for row in answer[part] if fnmatchcase(row["tensor"], pattern)]
        if arguments.sort != "graph":
            answer["tensors"].sort(key=_order(arguments.sort or _measured(answer["method"])))
    if arguments.json:
        print(json.dumps({"targets": answers}, indent=1, allow_nan=False))
    else:
        recipes = {subject.name: subject.target.recipe for subject in prepared.subjects}
        texts = (_text(name, answer, recipes[name], all_rows=pattern != "*") for name, answer in answers.items())
        print("\n\n".join(texts))
    warned = any(finding["severity"] == "warning" for answer in answers.values() for finding in answer["findings"])
    return FOUND if arguments.strict and warned else 0


def _calibrated(subjects: Sequence[Subject], tasks: Sequence[Task]) -> tuple[list[Subject], list[str]]:
    """The targets whose ranges npubake decides, and why each other one is left out. Raises UsageError where none is."""
    known = {target for task in tasks if task.stage.name == "calibrate" for target in task.targets}
    kept = [subject for subject in subjects if subject.name in known]
    whys = {
        subject.name: f"nothing is calibrated here: lane {subject.target.lane.value}, or another quantiser decides"
        for subject in subjects
        if subject.name not in known
    }
    if not kept:
        hint = "what-if forecasts what npubake's own calibration would lose"
        raise UsageError(*(Fault(what=why, where=name, hint=hint) for name, why in whys.items()))
    return kept, [f"{name}: {why}" for name, why in whys.items()]


def _answer(prepared: Prepared, probes: Sequence[Probe], subject: Subject) -> dict[str, Any]:
    """The target's method, samples, forecasts and findings as JSON can hold them. Raises UsageError before observe."""
    from npubake.calibration.statistics import Statistics
    from npubake.graph.resolve import resolve_overrides
    from npubake.graph.summary import GraphSummary
    from npubake.quant import lint
    from npubake.quant.declared_ranges import declared_ranges
    from npubake.quant.request import parse_request
    from npubake.quant.what_if import forecasts

    task = next(p.task for p in probes if subject.name in p.task.targets and p.task.stage.name == "calibrate")
    summary = GraphSummary.load(_blob(prepared, probes, task, "graph", subject.name))
    statistics = Statistics.load(_blob(prepared, probes, task, "statistics", subject.name))
    request = parse_request({**task.params, "input_ranges": declared_ranges(task.params, summary)})
    made = forecasts(summary, statistics.tensors, request.input_ranges, request.threshold.percentile)
    looked_at = lint.Examined(
        summary=summary,
        statistics=statistics.tensors,
        samples=statistics.samples,
        request=request,
        matched=[entry.groups for entry in resolve_overrides(summary, request.overrides)],
        forecasts=made,
        held=_held(subject, statistics.samples),
    )
    return {
        "method": request.threshold.method,
        "percentile": request.threshold.percentile,
        "samples": statistics.samples,
        "tensors": [_row(forecast) for forecast in made],
        "findings": [asdict(finding) for finding in lint.findings(looked_at)],
    }


def _held(subject: Subject, observed: int) -> int | None:
    """Examples that the calibration data hold; None where they are random, saved ones, or cannot be counted."""
    from npubake.graph.array_files import UnreadableArrayError, read_npz

    listing = subject.calibration
    if listing.kind == "random" or subject.loaded_samples is not None:
        return None
    if listing.kind != "npz":
        return len(listing.examples) if "npz" not in listing.kind else None
    if observed <= len(listing.examples):
        return None  # a stack of examples, or one with an axis of that length
    try:
        return sum(max(len(array) for array in read_npz(path.read_bytes()).values()) for path in listing.paths)
    except (UnreadableArrayError, OSError, TypeError, ValueError):
        return None


def _blob(prepared: Prepared, probes: Sequence[Probe], task: Task, port: str, target: str) -> Path:
    """The file that ``calibrate`` reads at ``port``, in the store. Raises UsageError where it is not made."""
    from npubake.pipeline.task import Output

    (source,) = [entry for entry in task.inputs[port] if isinstance(entry, Output)]
    maker = next(probe for probe in probes if probe.task.id == source.task)
    store = prepared.project.store
    digest = "" if maker.record is None else maker.record.outputs[source.port].digest
    if not digest or not store.verified(digest):
        hint = f"npubake build {target} --until observe makes it, once."
        what = "graph is" if port == "graph" else "statistics are"
        raise UsageError(Fault(what=f"{target}: the {what} not made yet", where="what-if", hint=hint))
    return store.blob_path(digest)


def _row(forecast: Forecast) -> dict[str, Any]:
    """JSON of a forecast: SQNR in dB, ``lossless`` or ``overflow``."""
    plain = asdict(forecast)
    for form, methods in forecast.eight_bits.items():
        plain["eight_bits"][form] = {method: _told(value) for method, value in methods.items()}
    return {**plain, "int16": _told(forecast.int16), "float16": _told(forecast.float16)}


def _told(decibels: float) -> float | str:
    if math.isinf(decibels):
        return "lossless" if decibels > 0 else "overflow"
    return round(decibels, 2)


def _order(sort: str) -> Callable[[Mapping[str, Any]], Any]:
    """The worst first, or by name."""
    if sort == "tensor":
        return lambda row: row["tensor"]
    return lambda row: _worth(row["eight_bits"]["uint8"].get(sort) if sort in METHODS else row[sort])


def _measured(method: str) -> str:
    """``auto`` is least squared error until ``tune`` tries others."""
    return "mse" if method == "auto" else method


def _worth(told: float | str) -> float:
    if isinstance(told, str):
        return math.inf if told == "lossless" else -math.inf
    return told


def _text(name: str, answer: Mapping[str, Any], recipe: Recipe, *, all_rows: bool) -> str:
    rows = answer["tensors"] if all_rows else answer["tensors"][:_ROWS]
    cells = [
        [
            row["tensor"],
            f"{row['minimum']:.4g}",
            f"{row['maximum']:.4g}",
            *(_shown(row["eight_bits"]["uint8"][method]) for method in METHODS),
            _shown(row["eight_bits"]["uint8_symmetric"][_measured(answer["method"])]),
            _shown(row["int16"]),
            _shown(row["float16"]),
        ]
        for row in rows
    ]
    heads = ["tensor", "from", "to", *METHODS, "symmetric", "int16", "float16"]
    head = f"{name}: SQNR in dB of each tensor by itself, {answer['samples']} examples"
    lines = [f"{head}, percentile {answer['percentile']:g}", table(cells, heads)]
    if len(rows) < len(answer["tensors"]):
        lines.append(f"  and {len(answer['tensors']) - len(rows)} more: --tensor PATTERN chooses, --json has all")
    return "\n".join([*lines, *findings_text(answer["findings"], recipe)])


def _shown(told: float | str) -> str:
    return told if isinstance(told, str) else f"{told:.1f}"
