"""Pipeline: the key of a task: sha256 of the canonical JSON of one dictionary. Explain is the difference of two.

In: a task, the digests of its inputs, versions. Out: the dictionary, its key, a list of changes. No I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npubake.pipeline.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference: path (``params.calibration.method``), old and new JSON values; ``None`` also means absent."""

    path: str
    old: Any
    new: Any


def canonical(value: Any) -> bytes:
    """JSON bytes that depend on the value alone: keys sorted, no spaces, ASCII, floats by their shortest repr.

    Raises ValueError for NaN and infinities, TypeError for what JSON cannot hold or keys that are not strings.
    """
    _refuse_other_keys(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def key_dictionary(
    task: Task, digests: Mapping[str, Sequence[str]], tools: Mapping[str, str], code: str | None
) -> dict[str, Any]:
    """All that the bytes of a task's outputs depend on. ``code`` is None in an installed wheel."""
    dictionary: dict[str, Any] = {
        "stage": task.stage.name,
        "version": task.stage.version,
        "params": dict(task.params),
        "inputs": {port: list(digests[port]) for port in sorted(digests) if digests[port]},
        "tools": dict(tools),
    }
    if code is not None:
        dictionary["code"] = code
    return dictionary


def key(dictionary: Mapping[str, Any]) -> str:
    """Hex sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(dictionary)).hexdigest()


def difference(old: Any, new: Any, path: str = "") -> list[Change]:
    """The changes that lead from one JSON value to another, in the order of their paths.

    Lists of equal length are compared place by place, others as bags: what left and what came.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        changes = []
        for name in sorted({*old, *new}):
            changes += difference(old.get(name), new.get(name), f"{path}.{name}" if path else name)
        return changes
    if _is_list(old) and _is_list(new):
        if len(old) == len(new):
            pairs = zip(old, new, strict=True)
            return [c for i, (a, b) in enumerate(pairs) for c in difference(a, b, f"{path}[{i}]")]
        return _bag_difference(old, new, path)
    same = old == new and type(old) is type(new)  # 1, 1.0 and True are different JSON
    return [] if same else [Change(path=path, old=old, new=new)]


def _bag_difference(old: Sequence[Any], new: Sequence[Any], path: str) -> list[Change]:
    before, after = (Counter(canonical(item) for item in items) for items in (old, new))
    left = [Change(path=f"{path}[]", old=json.loads(item), new=None) for item in (before - after).elements()]
    came = [Change(path=f"{path}[]", old=None, new=json.loads(item)) for item in (after - before).elements()]
    return [*left, *came]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _refuse_other_keys(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"JSON keys are strings, found {name!r}")
            _refuse_other_keys(item)
    elif _is_list(value):
        for item in value:
            _refuse_other_keys(item)
