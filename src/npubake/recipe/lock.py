"""Recipe room: the lock file beside a recipe: what its preset expanded to, and tool versions. Reads and writes it only.

Presets change meaning between releases; the lock keeps what a recipe was built with. Its *request* is what the recipe
asked for: a lock freezes the expansion of an unchanged request. Where the recipe asks for something else today, the
lock's preset no longer applies to it, and a build writes the lock anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import npubake
from npubake.document.reader import Document
from npubake.document.schema import validate
from npubake.document.tree import Mark, Node
from npubake.errors import Fault, RecipeError
from npubake.recipe.presets import Preprocessing
from npubake.recipe.recipe import Recipe

Policy = Literal["plain", "update", "locked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The frozen facts. request: preset name or mapping as the recipe writes it; tools: distribution -> version;
    digest: of the file that it was read from, '' for one of today.
    """

    npubake: str
    request: str | Mapping[str, Any]
    preset: Preprocessing
    tools: Mapping[str, str]
    digest: str = field(default="", compare=False)

    def as_data(self) -> dict[str, Any]:
        return {
            "version": 1,
            "npubake": self.npubake,
            "request": self.request,
            "preset": self.preset.expanded(),
            "tools": dict(self.tools),
        }

    def to_json(self) -> str:
        return json.dumps(self.as_data(), sort_keys=True, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value that differs; path: JSON path in the lock; None: absent."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.path}: {json.dumps(self.old)} -> {json.dumps(self.new)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a build goes by. lock: the one that is used; differences: of today's from the file's, where that is used and
    not exact; frozen_wins: the lock's preset differs from the shipped one and is used; due: the lock is to be written;
    why: a few words on it, '' where none was there.
    """

    lock: Lock
    differences: tuple[Difference, ...] = ()
    frozen_wins: bool = False
    due: bool = False
    why: str = ""

    @property
    def preprocessing(self) -> Preprocessing:
        return self.lock.preset

    @property
    def digest(self) -> str:
        """sha256 of the file that holds the lock used, once what is due is written."""
        return self.lock.digest or hashlib.sha256(self.lock.to_json().encode()).hexdigest()


def lock_path(recipe: Recipe) -> Path:
    """``<recipe>.lock`` beside the recipe file."""
    return recipe.file.parent / f"{recipe.name}.lock"


def compute(recipe: Recipe, tools: Mapping[str, str]) -> Lock:
    """The lock of today. tools: versions of the distributions that reach the bytes, given by the caller."""
    return Lock(npubake=npubake.__version__, request=recipe.request, preset=recipe.preprocessing, tools=dict(tools))


def read(path: Path) -> Lock | None:
    """The lock in ``path``, None where there is none. Raises RecipeError with every fault of a damaged one."""
    if not path.exists():
        return None
    document = Document(file=str(path))
    try:
        text = path.read_bytes()
        data = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        document.faults.append(Fault(what=f"not JSON: {error}", where=str(path)))
    else:
        validate(document, _tree(data, Mark(file=str(path), line=1, column=1)), "lock")
    if document.faults:
        hint = "It is written by npubake: build with --update-lock to write it again."
        raise RecipeError(*document.faults, Fault(what="the lock file cannot be used", where=str(path), hint=hint))
    return Lock(
        npubake=data["npubake"],
        request=data["request"],
        preset=Preprocessing.from_expanded(data["preset"]),
        tools=data["tools"],
        digest=hashlib.sha256(text).hexdigest(),
    )


def _tree(value: Any, mark: Mark) -> Node:
    """Plain JSON as a tree whose every place is the file's start: faults of a lock are told by path."""
    if isinstance(value, dict):
        return Node(value={name: _tree(child, mark) for name, child in value.items()}, mark=mark)
    if isinstance(value, list):
        return Node(value=[_tree(child, mark) for child in value], mark=mark)
    return Node(value=value, mark=mark)


def write(lock: Lock, path: Path) -> None:
    """Write whole or not at all: a reader never sees half a lock."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(lock.to_json(), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        hint = "Make the folder writable, or build with --locked and a lock that is there."
        raise RecipeError(Fault(what=f"cannot be written: {error.strerror}", where=str(path), hint=hint)) from error


def differences(old: Lock, new: Lock) -> tuple[Difference, ...]:
    """Every leaf that differs, in the order of its path."""
    before, after = _leaves(old.as_data(), "$"), _leaves(new.as_data(), "$")
    return tuple(
        Difference(path=path, old=before.get(path), new=after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {leaf: found for key in value for leaf, found in _leaves(value[key], f"{path}.{key}").items()}
    return {path: value}


def choose(recipe: Recipe, tools: Mapping[str, str], policy: Policy = "plain") -> Applied:
    """Read and compare the lock of ``recipe``; writes nothing, ``due`` says whether a build writes ``lock``.

    plain: due where it is missing or the recipe asks for another preprocessing; where only tools or the shipped preset
    differ, the caller warns of ``differences`` and the frozen preset is used. update: due wherever it differs. locked:
    RecipeError where it is missing or differs.
    """
    path = lock_path(recipe)
    today = compute(recipe, tools)
    if policy == "update":
        exact = path.is_file() and path.read_bytes() == today.to_json().encode()
        return Applied(lock=today, due=not exact, why="as --update-lock asks")
    old = read(path)
    if policy == "locked":
        return _locked(path, old, today)
    if old is None:
        return Applied(lock=today, due=True)
    if old.request != today.request:
        return Applied(lock=today, due=True, why="the recipe asks for another preprocessing")
    return Applied(lock=old, differences=differences(old, today), frozen_wins=old.preset != today.preset)


def _locked(path: Path, old: Lock | None, today: Lock) -> Applied:
    hint = "Build once without --locked, or with --update-lock, and commit the lock."
    if old is None:
        raise RecipeError(Fault(what="there is no lock, and --locked asks for one", where=str(path), hint=hint))
    *others, last = differences(old, today) or (None,)
    if last is None:
        return Applied(lock=old)
    faults = [Fault(what=f"differs from the lock: {change}", where=str(path)) for change in others]
    raise RecipeError(*faults, Fault(what=f"differs from the lock: {last}", where=str(path), hint=hint))
