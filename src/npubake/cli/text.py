"""Command line room: plain data as text for people. Pure; prints nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from npubake.released import astray_text
from npubake.report.tables import laid_out

if TYPE_CHECKING:
    from pathlib import Path

    from npubake.recipe.recipe import Recipe


def table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    """Columns two spaces apart under their heads; cells that are all numbers stand to the right."""
    if not rows:
        return "  (none)"
    align = [">" if all(_is_figure(cell) for cell in column) else "<" for column in zip(*rows, strict=True)]
    return "\n".join(f"  {line}".rstrip() for line in laid_out([heads, *rows], align))


def _is_figure(text: str) -> bool:
    return text.removesuffix(" s").removesuffix(" B").replace(".", "", 1).replace("-", "", 1).isdigit()


def whose(targets: Sequence[str]) -> str:
    """The first target, and how many more share the work."""
    return targets[0] if len(targets) == 1 else f"{targets[0]} and {len(targets) - 1} more"


def below_project(file: Path, recipe: Recipe) -> str:
    """The file's name below the project of ``recipe``; whole where it lies elsewhere."""
    folder = recipe.file.parent.parent
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def plan_text(targets: Mapping[str, Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]]) -> str:
    """Every task with its outcome and first reason; above it, who decided each target's lane."""
    heads = [
        f"{name}: platform {facts['platform']}, toolchain {facts['toolchain']}, "
        f"lane {facts['lane']} (from the {facts['lane_decided_by']})"
        for name, facts in targets.items()
    ]
    rows = [[task["role"], task["outcome"], whose(task["targets"]), "; ".join(task["reasons"][:2])] for task in tasks]
    return "\n".join([*heads, table(rows, ["stage", "outcome", "target", "reason"])])


def status_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A line a target; below, files that are not of a target's last good build, and what is to be installed."""
    lines = []
    for name, facts in rows.items():
        failed = [gate for gate in facts["gates"] if not gate["passed"]]
        undone = f"{len(facts['to_run'])} to run, {len(facts['to_restore'])} to restore"
        state = "current" if facts["current"] else "toolchain missing" if facts.get("needs") else undone
        gates = f"{len(facts['gates'])} gates, {len(failed)} failed" if facts["manifest"] else ""
        lines.append([name, _last_build(facts), state, gates])
    strays = [f"{name}: {astray_text(facts['astray'])}" for name, facts in rows.items() if facts["astray"]]
    needs = dict.fromkeys(need for facts in rows.values() for need in facts.get("needs", ()))
    return "\n".join([table(lines, ["target", "last build", "state", "gates"]), *strays, *needs])


def _last_build(facts: Mapping[str, Any]) -> str:
    """Whether there is a good one, and where the last one failed."""
    failed = f"failed at {', '.join(facts['failed'])}" if facts["failed"] else ""
    if not facts["manifest"]:
        return f"never built; {failed}" if failed else "never built"
    good = f"{facts['bundle']} of {facts['finished']}"
    return f"{failed}; last good: {good}" if failed else f"built: {good}"
