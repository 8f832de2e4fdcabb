"""Recipe room: what the format names and no stage carries out yet, refused by name. Plain data in, refusals out.

An entry leaves this table together with the commit that makes a stage read it; a key is never accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.document.tree import Path as Place

# Place (``*``: any name or position) -> the values that are refused there; () for all of them.
UNSERVED: Mapping[tuple[str, ...], tuple[Any, ...]] = {
    ("quant_config", "mod"): (),
    ("layer_overrides", "*", "set", "mod"): (),
}


def unserved(data: dict[str, Any]) -> Iterator[tuple[Place, str, str]]:
    """Whatever of the table a recipe asks for."""
    for pattern, values in UNSERVED.items():
        for place, value in _found(data, pattern):
            if not values or value in values:
                word = f"{place[-1]!r}" if not values else f"{place[-1]} {value}"
                yield place, f"{word} cannot be built by this version", "Remove it."


def _found(data: Any, pattern: tuple[str, ...], place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every place of ``data`` that fits ``pattern``, with its value."""
    if not pattern:
        yield place, data
        return
    step, rest = pattern[0], pattern[1:]
    if isinstance(data, dict):
        names = [name for name in data if step in ("*", name)]
        children = [(name, data[name]) for name in names]
    else:
        children = list(enumerate(data)) if isinstance(data, list) and step == "*" else []
    for name, child in children:
        yield from _found(child, rest, (*place, name))
