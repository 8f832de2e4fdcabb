"""Recipe room: which files make a data set, found without decoding any. Reads names, lists, digests; no numpy, no PIL.

A *listing* is what the plan hands to the stages, as canonical JSON: ``{kind, examples, files}``. ``examples``: one
mapping of model input -> file name each, in order; the input ``""`` stands for the model's only input, or for a file
that holds all inputs by name (npz). ``files``: ``{name, digest}`` of every file, sorted by name; the files themselves
follow in that order (``Listing.paths``). An npz may hold many examples, one a row: it counts as one here, and is
spread out where it is decoded. Random data are the listing of kind ``random`` with no example.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.recipe.datalists import Example, read_list
from npubake.recipe.places import is_folder, why_no_file

Digest = Callable[[Path], str]

KINDS: Mapping[str, tuple[str, ...]] = {
    "images": (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"),
    "npy": (".npy",),
    "npz": (".npz",),
    "pt": (".pt", ".pth"),
}
_KIND_OF = {suffix: kind for kind, suffixes in KINDS.items() for suffix in suffixes}
_LISTS = (".txt", ".json")
_SIDE_STEMS = ("labels", "annotations", "readme", "license", "licence", "sources")
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """name: as the listing calls it, / between folders; digest: hex sha256; path: where it is, None once read back."""

    name: str
    digest: str
    path: Path | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A data set by names and digests."""

    kind: str
    examples: tuple[Mapping[str, str], ...]
    files: tuple[ListedFile, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files in the listing's order."""
        return tuple(file.path for file in self.files if file.path is not None)

    def to_json(self) -> bytes:
        """Canonical JSON: the same set gives the same bytes wherever it lies."""
        files = [{"name": file.name, "digest": file.digest} for file in self.files]
        data = {"version": 1, "kind": self.kind, "examples": list(self.examples), "files": files}
        return (json.dumps(data, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Listing:
        files = tuple(ListedFile(name=entry["name"], digest=entry["digest"]) for entry in data["files"])
        return cls(kind=data["kind"], examples=tuple(data["examples"]), files=files)


RANDOM = Listing(kind="random", examples=(), files=())


def list_data(path: Path, digest: Digest, where: str = "") -> Listing:
    """The listing of a folder, a single npz, a text list or a JSON list. where: place in the recipe, for messages.

    Raises RecipeError with every fault: nothing there, unknown kinds, mixed kinds, missing files, a file given twice,
    a TensorRT calibration cache.
    """
    faults: list[Fault] = []
    examples = _examples(path, where, faults)
    kind = _kind(path, examples, where, faults)
    if not faults and not examples:
        accepted = ", ".join(suffix for suffixes in KINDS.values() for suffix in suffixes)
        faults.append(Fault(what="no data", where=where or str(path), hint=f"{path} has no file of: {accepted}."))
    if faults:
        raise RecipeError(*capped(faults))
    paths = {name: file for example in examples for name, file in example.values()}
    files = tuple(_listed(paths, digest, faults))
    if faults:
        raise RecipeError(*capped(faults))
    names = tuple({key: name for key, (name, _) in sorted(example.items())} for example in examples)
    listing = Listing(kind=kind, examples=names, files=files)
    twice = list(_twice(listing, path))
    if twice:
        raise RecipeError(*capped(twice))
    return listing


def _listed(paths: Mapping[str, Path], digest: Digest, faults: list[Fault]) -> Iterator[ListedFile]:
    """Every file with its digest; what cannot be read, and names that no JSON can hold, are added to ``faults``."""
    for name, path in sorted(paths.items()):
        reason = why_no_file(path)
        if not reason and not _is_unicode(name):
            reason = "its name is not UTF-8"
        try:
            yield ListedFile(name=name, digest="" if reason else digest(path), path=path)
        except OSError as error:
            reason = str(error.strerror or error).lower()
        if reason:
            faults.append(Fault(what=reason, where=str(path), hint="Repair the file, or take it out of the data."))


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def capped(faults: list[Fault]) -> list[Fault]:
    """The first faults of a data set, and how many more there are."""
    rest = len(faults) - _SHOWN
    return faults if rest <= 0 else [*faults[:_SHOWN], Fault(what=f"and {rest} more faults of the same data")]


def _examples(path: Path, where: str, faults: list[Fault]) -> list[Example]:
    if is_folder(path):
        return [{"": (name, file)} for name, file in _folder(path, faults)]
    unreadable = why_no_data(path, where)
    if unreadable:
        faults.append(unreadable)
        return []
    if _is_tensorrt_cache(path):
        faults.append(_tensorrt(path))
        return []
    suffix = path.suffix.lower()
    if suffix in _LISTS:
        return read_list(path, faults)
    if suffix not in _KIND_OF:
        faults.append(_unknown(path.name, path))
        return []
    return [{"": (path.name, path)}]


def why_no_data(path: Path, where: str) -> Fault | None:
    """Why there is neither a folder nor a file at ``path``; None where there is one."""
    reason = "" if is_folder(path) else why_no_file(path)
    if not reason:
        return None
    hint = "Paths are relative to the file they stand in. Random data need 'data: random' and purpose smoke."
    what = f"there is no {path}" if reason == "there is no such file" else f"{path} cannot be read: {reason}"
    return Fault(what=what, where=where, hint=hint)


def _folder(path: Path, faults: list[Fault]) -> Iterator[tuple[str, Path]]:
    """Files of a folder and the folders below it, in the order of their names; side files are left out."""
    found: list[Path] = []

    def unreadable(error: OSError) -> None:
        hint = "Make it readable, or take it out of the data."
        what = f"the folder cannot be read: {error.strerror}"
        faults.append(Fault(what=what, where=str(error.filename), hint=hint))

    for folder, below, names in os.walk(path, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(".")]
        for link in (Path(folder) / name for name in below):
            if link.is_symlink():
                hint = "Links to folders are not followed, they may go in circles: name the folder itself, or copy it."
                faults.append(Fault(what="a link to a folder", where=str(link), hint=hint))
        found.extend(Path(folder) / name for name in names)
    for file in sorted(found, key=lambda each: each.relative_to(path).as_posix()):
        name = file.relative_to(path).as_posix()
        suffix = file.suffix.lower()
        if file.name.startswith(".") or suffix == ".md":
            continue
        if file.stem.lower() in _SIDE_STEMS and suffix not in KINDS["images"]:
            continue
        if file.suffix.lower() in _KIND_OF:
            yield name, file
        else:
            faults.append(_tensorrt(file) if _is_tensorrt_cache(file) else _unknown(name, file))


def _unknown(name: str, file: Path) -> Fault:
    suffix = PurePosixPath(name).suffix or "no suffix"
    hint = (
        f"Accepted: {', '.join(_KIND_OF)}. A list ({', '.join(_LISTS)}) is given as the data path itself, never inside."
    )
    return Fault(what=f"a file of unknown kind ({suffix})", where=str(file), hint=hint)


def _is_tensorrt_cache(file: Path) -> bool:
    """A TensorRT calibration cache is text whose first line is ``TRT-<version>-<calibrator>``."""
    if file.suffix.lower() in _KIND_OF or why_no_file(file):
        return False
    with file.open("rb") as stream:
        head = stream.read(80).split(b"\n")[0]
    return head.startswith(b"TRT-") and b"alibrat" in head


def _tensorrt(file: Path) -> Fault:
    return Fault(
        what="a TensorRT calibration cache, not calibration data",
        where=str(file),
        hint="Its ranges belong to TensorRT's own fused graph and carry no samples; give the pictures themselves.",
    )


def _kind(path: Path, examples: list[Example], where: str, faults: list[Fault]) -> str:
    """The kind of every input's files; a data set of one input has one kind."""
    kinds: dict[str, Counter[str]] = {}
    for example in examples:
        for key, (name, file) in example.items():
            suffix = PurePosixPath(name).suffix.lower()
            if suffix not in _KIND_OF:
                faults.append(_tensorrt(file) if file.is_file() and _is_tensorrt_cache(file) else _unknown(name, file))
            else:
                kinds.setdefault(key, Counter())[_KIND_OF[suffix]] += 1
    for key, counter in kinds.items():
        if len(counter) > 1:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(counter.items()))
            of_input = f" for input {key!r}" if key else ""
            hint = f"Keep one kind in {path}."
            faults.append(Fault(what=f"mixed kinds of files{of_input}: {counts}", where=where or str(path), hint=hint))
    return "+".join(sorted({kind for counter in kinds.values() for kind in counter}))


def _twice(listing: Listing, path: Path) -> Iterator[Fault]:
    digests = {file.name: file.digest for file in listing.files}
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    for example in listing.examples:
        content = tuple((key, digests[name]) for key, name in example.items())
        names = ", ".join(example.values())
        if content not in seen:
            seen[content] = names
            continue
        same = names == seen[content]
        what = f"{names} is listed twice" if same else f"{names} and {seen[content]} have the same bytes"
        yield Fault(what=what, where=str(path), hint="Keep one: a sample given twice counts twice in every range.")
