"""Command line room: findings of ``what-if`` as text, with lines that can be pasted into the recipe as it stands.

What mends a finding is YAML of one key of a recipe. Where the recipe has that key already, the lines take its
indentation and say below which line they belong: the same key twice would be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npubake.cli.text import below_project
from npubake.recipe.recipe import Recipe

_LISTS = ("layer_overrides",)  # keys whose lines go behind what stands there


def findings_text(findings: Sequence[Mapping[str, Any]], recipe: Recipe) -> list[str]:
    """Warnings, then notes; those that the same lines would mend stand together above them, and at the end the lines of
    all warnings in one piece.
    """
    if not findings:
        return ["", "nothing found"]
    together: dict[tuple[str, str], list[str]] = {}
    for finding in sorted(findings, key=lambda entry: entry["severity"] != "warning"):
        told = f"{finding['severity']}: {finding['tensor']}: {finding['what']}"
        together.setdefault((finding["severity"], finding["recipe"]), []).append(told)
    lines: list[str] = []
    for (_, text), several in together.items():
        lines += ["", *several, *pasted([text], recipe)]
    warned = [text for severity, text in together if severity == "warning"]
    if len(warned) > 1:
        lines += ["", "the lines of all warnings:", *pasted(warned, recipe)]
    return lines


def pasted(texts: Sequence[str], recipe: Recipe) -> list[str]:
    """The lines of ``texts`` (each one top-level key, as YAML) as they can be put into ``recipe``, equal ones once."""
    by_key: dict[str, dict[str, None]] = {}
    for text in texts:
        head, _, below = text.partition("\n")
        by_key.setdefault(head.rstrip(":"), {})[below] = None
    lines: list[str] = []
    for key, several in by_key.items():
        body = [line for below in several for line in below.splitlines()]
        lines += _below(key, body, recipe) if f"$.{key}" in recipe.positions else [f"{key}:", *body]
    return lines


def _below(key: str, body: Sequence[str], recipe: Recipe) -> list[str]:
    """``body`` for a key that the recipe has: with the indentation of what stands there."""
    file, line, column = recipe.where(f"$.{key}").rsplit(":", 2)
    written = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1][int(column) - 1 :]
    where = f"{below_project(Path(file), recipe)}:{line}"
    if written.startswith(("{", "[")):  # in one line: there is no place to paste lines into
        return [f"# {key} stands in brackets at {where}; it needs:", *(f"# {line}" for line in body)]
    step = min(len(line) - len(line.lstrip()) for line in body)
    moved = [f"{' ' * (int(column) - 1)}{line[step:]}" for line in body]
    place = "at the end of" if key in _LISTS else "in place of what is said of it in"
    return [f"# {place} {key}, {where}", *moved]
