"""Pipeline: the changes between two key dictionaries as sentences. Dictionaries and a reader of blobs in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from npubake.pipeline.key import Change, difference
from npubake.pipeline.task import Input, Literal, Output, SourceFile, Task

Reader = Callable[[str], bytes | None]
_MOST = 6  # entries named one by one; the rest is counted


def explain(old: Mapping[str, Any] | None, new: Mapping[str, Any], task: Task, read: Reader) -> tuple[str, ...]:
    """Why ``new`` is not ``old``; one sentence each.

    read: digest -> bytes, or None where the store has them no more; it lets changed JSON inputs be compared by entry.
    Empty where the dictionaries are equal.
    """
    if old is None:
        return ("not built here before",)
    reasons = []
    for name in ("version", "params", "tools"):
        reasons += [describe(change) for change in difference(old.get(name), new.get(name), name)]
    ports = sorted({*old.get("inputs", {}), *new.get("inputs", {})})
    for port in ports:
        before, after = (dictionary.get("inputs", {}).get(port, []) for dictionary in (old, new))
        if before != after:
            reasons += _input_changes(port, before, after, task.inputs.get(port, ()), read)
    if old.get("code") != new.get("code"):
        reasons.append("the stage's source changed")
    return tuple(reasons)


def describe(change: Change) -> str:
    """``calibration.method: "minmax" → "percentile"``; parameters lose their prefix."""
    path = re.sub(r"^params\.", "", change.path)
    path = re.sub(r"^version$", "stage version", re.sub(r"^tools\.", "version of ", path))
    old, new = (_short(value) for value in (change.old, change.new))
    if change.old is None:
        return f"{path}: {new} is new"
    if change.new is None:
        return f"{path}: {old} is gone"
    return f"{path}: {old} → {new}"


def _input_changes(port: str, old: list[str], new: list[str], items: tuple[Input, ...], read: Reader) -> list[str]:
    if len(old) != len(new):
        left, came = len(set(old) - set(new)), len(set(new) - set(old))
        parts = [f"{came} new" if came else "", f"{left} gone" if left else ""]
        return [f"input {port}: {' and '.join(part for part in parts if part) or 'another order'}"]
    changed = [
        (items[i] if i < len(items) else None, before, after)
        for i, (before, after) in enumerate(zip(old, new, strict=True))
        if before != after
    ]
    if sorted(old) == sorted(new):
        return [f"input {port}: another order"]
    reasons = [_one_input(port, *entry, read) for entry in changed[:_MOST]]
    if len(changed) > _MOST:
        reasons.append(f"input {port}: {len(changed) - _MOST} more changed")
    return reasons


def _one_input(port: str, item: Input | None, old: str, new: str, read: Reader) -> str:
    match item:
        case SourceFile(path=path):
            return f"{path} changed"
        case Output(task=task, port=made):
            return f"input {port} changed ({made} of {task.rpartition('-')[0]})"
        case Literal(label=label, data=data):
            return f"{label} changed{_json_changes(read(old), data)}"
    return f"input {port}: {old[:12]} → {new[:12]}"


def _json_changes(old: bytes | None, new: bytes) -> str:
    if old is None:
        return ""
    try:
        changes = difference(json.loads(old), json.loads(new))
    except ValueError:
        return ""
    shown = [describe(change) for change in changes[:_MOST]]
    more = [f"{len(changes) - _MOST} more"] if len(changes) > _MOST else []
    return ": " + "; ".join(shown + more) if shown else ""


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
