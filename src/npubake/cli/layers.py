"""Command line room: ``plan --layers``, what each layer of a target is set to and who decided. Reads the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npubake.cli.text import below_project, table
from npubake.errors import Fault, RecipeError, UsageError
from npubake.nearest import did_you_mean
from npubake.recipe.quant_config import STEPS

if TYPE_CHECKING:
    from npubake.pipeline.freshness import Probe
    from npubake.plan.subject import Subject
    from npubake.preparation import Prepared
    from npubake.quant.resolved import ResolvedLayer

_HEADS = ("layer", "kind", "computes in", "makes", "weights", "range", "steps", "decided by")


def layers_of(prepared: Prepared, probes: Sequence[Probe], pattern: str = "*") -> dict[str, list[dict[str, Any]]]:
    """Target -> a row a layer whose name, or one of whose roles or operator types, fits ``pattern``.

    Raises UsageError where a target's graph is not made yet (or not of this model any more), or nothing fits;
    RecipeError as ``check`` does.
    """
    found = {subject.name: _rows(subject, _graph(prepared, probes, subject)) for subject in prepared.subjects}
    words = {word for rows in found.values() for row in rows for word in _words(row)}
    kept = {name: [row for row in rows if _fits(row, pattern)] for name, rows in found.items()}
    if not any(kept.values()):
        hint = did_you_mean(pattern, words) or "A layer's name, kind, role or operator type, with * and ?."
        raise UsageError(Fault(what=f"{pattern!r} matches no layer", where="--match", hint=hint))
    return kept


def layers_text(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A table a target."""
    parts = []
    for name, rows in found.items():
        cells = [[row["layer"], row["kind"], *_cells(row["settings"])] for row in rows]
        parts.append(f"{name}:\n{table(cells, _HEADS)}")
    return "\n".join(parts)


def _graph(prepared: Prepared, probes: Sequence[Probe], subject: Subject) -> bytes:
    """graph.json of the target, as the store has it."""
    mine = (probe for probe in probes if subject.name in probe.task.targets and probe.task.stage.name == "optimize")
    record = next(mine).record
    text = None if record is None else prepared.project.store.read(record.outputs["graph"].digest)
    if text is None:
        hint = f"npubake build {subject.name} --until optimize makes it."
        raise UsageError(Fault(what=f"the graph of {subject.name} is not made yet", where="--layers", hint=hint))
    return text


def _rows(subject: Subject, graph: bytes) -> list[dict[str, Any]]:
    from npubake.graph.summary import GraphSummary
    from npubake.plan import parameters
    from npubake.quant.loading import read_scales
    from npubake.quant.resolved import resolved_layers

    transform = subject.target.recipe.quant_config.equivalent_transformation
    params = parameters.of_tune(subject)
    if transform is not None:
        params["equivalent_transformation"] = False if transform is False else {}
    scales = subject.loaded_scales
    try:
        loaded = read_scales(scales, "calibrate") if scales is not None else None
        layers = resolved_layers(GraphSummary.from_json(json.loads(graph)), params, loaded)
    except RecipeError as error:
        raise RecipeError(*(_placed(fault, subject) for fault in error.faults)) from error
    return [_row(layer, subject) for layer in layers]


def _placed(fault: Fault, subject: Subject) -> Fault:
    recipe = subject.target.recipe
    return Fault(what=fault.what, where=recipe.where(fault.path), path=fault.path, hint=fault.hint)


def _row(layer: ResolvedLayer, subject: Subject) -> dict[str, Any]:
    return {
        "layer": layer.group,
        "kind": layer.kind,
        "op_types": list(layer.op_types),
        "roles": list(layer.roles),
        "settings": {
            name: {"value": setting.value, "decided_by": _decided(setting.why, subject)}
            for name, setting in layer.settings.items()
        },
    }


def _decided(why: str, subject: Subject) -> str:
    """Who decided, with the file and line where it is a place of the recipe."""
    first, comma, rest = why.partition(",")
    place = first
    if first.startswith("lane "):
        if subject.target.lane.decided_by == "platform":
            return f"{first} of platform {subject.target.platform.name}{comma}{rest}"
        place = "quant_config.lane"
    elif not first.startswith(("layer_overrides[", "quant_config.", "platform_options")):
        return why
    return f"{first} ({_short(subject.target.recipe.where(f'$.{place}'), subject)}){comma}{rest}"


def _short(where: str, subject: Subject) -> str:
    """``file:line`` with the file's name below the project."""
    file, line, _ = where.rsplit(":", 2)
    return f"{below_project(Path(file), subject.target.recipe)}:{line}"


def _words(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (row["layer"], row["kind"], *row["op_types"], *row["roles"])


def _fits(row: Mapping[str, Any], pattern: str) -> bool:
    return any(fnmatchcase(word, pattern) for word in _words(row))


def _cells(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    values = {name: setting["value"] for name, setting in settings.items()}
    weights = [values[name] for name in ("weights", "granularity", "group_size") if name in values]
    weights += ["with zero points"] if values.get("symmetric") is False else []
    ranges = [values[name] for name in ("method", "percentile") if name in values]
    if "asymmetric" in values:
        ranges.append("asymmetric" if values["asymmetric"] else "symmetric")
    steps = [name if values[name] is True else f"{name}: {_shown(values[name])}" for name in STEPS if name in values]
    levels = {str(values[name]) for name in STEPS if str(values.get(name, "")).startswith("level ")}
    if levels:
        steps = [text for text in steps if "level " not in text] + [f"tuning {level}" for level in sorted(levels)]
    deciders = dict.fromkeys(setting["decided_by"] for setting in settings.values())
    shown = [text for text in deciders if text != "default"]
    return [
        str(values.get("activation", "")),
        str(values.get("output", "")),
        " ".join(map(str, weights)),
        " ".join(map(str, ranges)),
        ", ".join(steps),
        "; ".join(shown),
    ]


def _shown(value: object) -> str:
    return "no" if value is False else str(value)
