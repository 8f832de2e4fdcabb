"""Document room: the positioned tree. Every value knows the file, line and column it was written at. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool | None
Path = tuple[str | int, ...]
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value with its place. value: a scalar, a list of nodes or a mapping of nodes; key: where its key stands."""

    value: Scalar | list[Node] | dict[str, Node]
    mark: Mark
    key: Mark | None = None

    def plain(self) -> Any:
        """The same data without places."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def find(self, path: Sequence[str | int]) -> Node:
        """The node at ``path``, or the deepest one on the way to it that exists."""
        node = self
        for step in path:
            child = node.child(step)
            if child is None:
                return node
            node = child
        return node

    def child(self, step: str | int) -> Node | None:
        """The node one step below; None where there is none."""
        if isinstance(self.value, dict) and isinstance(step, str):
            return self.value.get(step)
        if isinstance(self.value, list) and isinstance(step, int) and step < len(self.value):
            return self.value[step]
        return None

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Node]]:
        """Every node with its path, this one first."""
        yield path, self
        if isinstance(self.value, dict):
            for name, child in self.value.items():
                yield from child.walk((*path, name))
        elif isinstance(self.value, list):
            for index, child in enumerate(self.value):
                yield from child.walk((*path, index))


def json_path(path: Sequence[str | int]) -> str:
    """``$.layer_overrides[1].match``; keys that are no plain words stand in brackets: ``$.inputs["a/b"]``."""
    parts = ["$"]
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _PLAIN_KEY.match(step):
            parts.append(f".{step}")
        else:
            parts.append(f'["{step}"]')
    return "".join(parts)
