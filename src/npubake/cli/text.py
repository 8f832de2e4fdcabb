"""Command line room: plain data as text for people. Pure; prints nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    """Columns two spaces apart under their heads; cells that are all numbers stand to the right."""
    if not rows:
        return "  (none)"
    every = [list(heads), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in every) for column in range(len(heads))]
    numeric = [all(_is_figure(row[column]) for row in rows) for column in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        return ("  " + "  ".join(cells)).rstrip()

    return "\n".join([line(heads), *(line(row) for row in rows)])


def _is_figure(text: str) -> bool:
    return text.removesuffix(" s").removesuffix(" B").replace(".", "", 1).replace("-", "", 1).isdigit()


def _whose(targets: Sequence[str]) -> str:
    return targets[0] if len(targets) == 1 else f"{targets[0]} and {len(targets) - 1} more"


def plan_text(targets: Mapping[str, Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]]) -> str:
    """Every task with its outcome and first reason; above it, who decided each target's lane."""
    heads = [
        f"{name}: platform {facts['platform']}, toolchain {facts['toolchain']}, "
        f"lane {facts['lane']} (by {facts['lane_decided_by']})"
        for name, facts in targets.items()
    ]
    rows = [[task["role"], task["outcome"], _whose(task["targets"]), "; ".join(task["reasons"][:2])] for task in tasks]
    return "\n".join([*heads, table(rows, ["stage", "outcome", "target", "reason"])])


def status_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A line a target."""
    lines = []
    for name, facts in rows.items():
        failed = [gate for gate in facts["gates"] if not gate["passed"]]
        built = "built" if facts["manifest"] else "never built"
        state = (
            "current" if facts["current"] else f"{len(facts['to_run'])} to run, {len(facts['to_restore'])} to restore"
        )
        lines.append([name, built, state, f"{len(facts['gates'])} gates, {len(failed)} failed"])
    return table(lines, ["target", "", "state", "gates"])
