"""Recipe room: what a recipe names outside itself, checked as far as its tree can be read, faulty or not.

A recipe that is refused is told with these at once, instead of one round later. Looks at paths only; opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from npubake.document.tree import Node, json_path
from npubake.document.tree import Path as Place
from npubake.errors import Fault, PlatformError
from npubake.platforms import Platform, combine
from npubake.recipe.convert import DIGEST, path_at
from npubake.recipe.data import why_no_data
from npubake.recipe.places import why_no_file

_LOAD = ("quant_config", "load")
_FILES: tuple[Place, ...] = (
    ("model", "path"),
    ("model", "baseline"),
    *((*_LOAD, name, *rest) for name in ("samples", "scales") for rest in ((), ("path",))),
)
_DATA: tuple[Place, ...] = (("calibration", "data"), ("metric", "data"))


def named_faults(root: Node, platforms: Mapping[str, Platform]) -> list[Fault]:
    """Platforms that have no file, and paths that lead nowhere, in the merged tree of a recipe."""
    return [*_platform_faults(root, platforms), *_file_faults(root), *_data_faults(root)]


def platform_at(name: str, where: str, path: str, known: Mapping[str, Platform]) -> Platform | tuple[Fault, ...]:
    """The platform called ``name`` (of several SoCs ``a+b``), or what is wrong with the name, at its place."""
    try:
        return combine(name, known)
    except PlatformError as error:
        return tuple(replace(fault, where=where, path=path) for fault in error.faults)


def no_file(file: Path, where: str, path: str) -> Fault | None:
    """Why ``file`` cannot be read; None where it can."""
    hint = "Paths are relative to the recipe file that they stand in."
    reason = why_no_file(file)
    return Fault(what=f"{file}: {reason}", where=where, path=path, hint=hint) if reason else None


def _platform_faults(root: Node, known: Mapping[str, Platform]) -> Iterator[Fault]:
    for place, node in root.walk():
        stated = place == ("platform",) or (len(place) == 2 and place[0] == "platforms")
        if stated and isinstance(node.value, str):
            found = platform_at(node.value, str(node.mark), json_path(place), known)
            yield from found if isinstance(found, tuple) else ()


def _file_faults(root: Node) -> Iterator[Fault]:
    for place in _FILES:
        file = path_at(root, place)
        if file is not None and DIGEST.fullmatch(file.name):
            continue  # the digest of something in the store
        fault = no_file(file, str(root.find(place).mark), json_path(place)) if file else None
        if fault:
            yield fault


def _data_faults(root: Node) -> Iterator[Fault]:
    for place in _DATA:
        path = path_at(root, place)
        random = place[0] == "calibration" and root.find(place).value == "random"
        fault = why_no_data(path, str(root.find(place).mark)) if path and not random else None
        if fault:
            yield fault
