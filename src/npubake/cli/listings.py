"""Command line room: ``list``, what there is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npubake.cli import root
from npubake.cli.text import table
from npubake.errors import Fault, UsageError

KINDS = ("recipes", "platforms", "presets", "toolchains")


def run_list(arguments: argparse.Namespace) -> int:
    """``npubake list``."""
    if arguments.what[:1] == ["layers"]:
        return _show({"layers": _layers(arguments.directory, arguments.what[1:])}, as_json=arguments.json)
    wanted = arguments.what or KINDS
    faults = [
        Fault(what=f"there is no list of {kind!r}", hint=f"One of {', '.join(KINDS)}; or layers TARGET.")
        for kind in wanted
        if kind not in KINDS
    ]
    if faults:
        raise UsageError(*faults)
    return _show({kind: _LISTS[kind](arguments.directory) for kind in wanted}, as_json=arguments.json)


def _show(found: Mapping[str, list[dict[str, Any]]], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(found, indent=1))
        return 0
    for kind, rows in found.items():
        print(f"{kind}:")
        columns = list(dict.fromkeys(column for row in rows for column in row))
        print(table([[str(row.get(column, "")) for column in columns] for row in rows], columns))
    return 0


def _layers(directory: str, named: Sequence[str]) -> list[dict[str, Any]]:
    """Every node that ``layer_overrides`` can name, with the fused layer that it belongs to, of one target's graph."""
    from npubake.graph.summary import GraphSummary

    place = root.find(directory)
    known = sorted(path.parent.name for path in (place / "build").glob("*/graph.json"))
    if len(named) != 1 or named[0] not in known:
        what = f"{named[0]!r} has no graph" if len(named) == 1 else "layers are those of one target"
        hint = "npubake build TARGET --until optimize makes it." + (f" There is: {', '.join(known)}." if known else "")
        raise UsageError(Fault(what=what, where="list layers", hint=hint))
    path = place / "build" / named[0] / "graph.json"
    try:
        graph = GraphSummary.load(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = f"npubake build {named[0]} --until optimize puts it back."
        raise UsageError(Fault(what=f"it cannot be read: {error}", where=str(path), hint=hint)) from error
    types = {node.name: node.op_type for node in graph.nodes}
    return [
        {"name": node, "type": types[node], "kind": group.kind, "fused into": group.name}
        for group in graph.groups
        for node in group.nodes
    ]


def _recipes(directory: str) -> list[dict[str, Any]]:
    from npubake.recipe.targets import load_catalogue

    catalogue = load_catalogue(root.find(directory))
    rows: list[dict[str, Any]] = []
    for name, recipe in catalogue.recipes.items():
        targets = [target.name for target in catalogue.targets.values() if target.recipe.name == name]
        rows.append({"name": name, "targets": " ".join(targets), "description": recipe.description})
    for name, error in catalogue.broken.items():
        rows.append({"name": name, "targets": "cannot be read", "description": str(error.faults[0])})
    return rows


def _platforms(directory: str) -> list[dict[str, Any]]:
    from npubake.platforms import load_platforms

    return [
        {
            "name": platform.name,
            "title": platform.title,
            "march": platform.march.value or "",
            "lane": platform.lane.value,
            "tail": platform.tail.value,
            "nv12_stride_bytes": platform.nv12_stride_bytes.value,
            "tensor_unit_bytes": platform.tensor_unit_bytes.value,
            "toolchains": " ".join(platform.toolchains),
        }
        for platform in load_platforms(_project_or_here(directory)).values()
    ]


def _project_or_here(directory: str) -> Path:
    try:
        return root.find(directory)
    except UsageError:
        return Path(directory)  # outside a project the shipped platforms are listed


def _presets(_: str) -> list[dict[str, Any]]:
    from npubake.recipe.presets import PRESETS

    rows = []
    for name, preset in PRESETS.items():
        resize, crop = preset.resize, preset.crop
        size = (
            f"{resize.kind} {resize.size[0]}x{resize.size[1]} {resize.interpolation} {resize.backend}" if resize else ""
        )
        steps = [size, f"crop {crop[0]}x{crop[1]}" if crop else ""]
        rows.append(
            {
                "name": name,
                "version": preset.version,
                "calibration data": f"{preset.channels or 'prepared tensors'} {preset.input_dtype}",
                "preprocessing": ", ".join(filter(None, steps)) or "none",
            }
        )
    return rows


def _toolchains(_: str) -> list[dict[str, Any]]:
    from npubake.toolchains import probe_all

    return [
        {"name": p.name, "usable": "yes" if p.usable else "no", "version": p.version, "why": p.why} for p in probe_all()
    ]


_LISTS = {"recipes": _recipes, "platforms": _platforms, "presets": _presets, "toolchains": _toolchains}
