"""Recipe room: the files beside a model that keep its weights. A path enters; their paths, or every fault, leave.

A model above 2 GiB must keep its values in other files, and any may ("external data", onnx/onnx.proto, TensorProto).
They are inputs of ``import`` like the model itself, so the plan must know them; it knows no onnx, hence the protobuf's
own wire format is read here, no further than to these names (protobuf encoding documentation). Most models have none:
then one search for the key that would name them is all.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from npubake.errors import Fault
from npubake.recipe.places import why_no_file

MAX_BYTES = 2**31 - 1  # of one protobuf message, which every artifact is
_KEY = b"\n\x08location"  # an entry's first field: the key, eight characters
# Message -> field -> what it holds: another message, or what this room wants. Field numbers: onnx/onnx.proto.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {1: "key", 2: "value"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelData:
    """files: name in the model -> path, sorted by name; faults: names that lead nowhere, and too many bytes."""

    files: dict[str, Path] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


def find_model_data(model: Path, where: str) -> ModelData:
    """The files that ``model`` names, relative to its folder. A file that is no model has none: ``import`` says so."""
    tensors = _tensors(model)
    names = sorted({name for name, _ in tensors})
    files = {name: model.parent / name for name in names}
    faults = [fault for name, path in files.items() if (fault := _fault(model, name, path, where)) is not None]
    if not faults:
        total = model.stat().st_size + sum(size or files[name].stat().st_size for name, size in tensors)
        if total > MAX_BYTES:
            what = f"{model.name} and its data hold {total} bytes; an artifact is one file of at most {MAX_BYTES}"
            hint = "Split the model, or look up a large embedding in the application."
            faults.append(Fault(what=what, where=where, path="$.model.path", hint=hint))
    return ModelData(files=files, faults=tuple(faults))


def _fault(model: Path, name: str, path: Path, where: str) -> Fault | None:
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts or "\\" in name:
        what = f"{model.name} keeps values in {name!r}, which does not lie beside it or below its folder"
        hint = "Save it again in one piece: onnx.save_model(onnx.load(path), path, save_as_external_data=True)."
        return Fault(what=what, where=where, path="$.model.path", hint=hint)
    reason = why_no_file(path)
    if not reason:
        return None
    what = f"{model.name} keeps values in {name!r}: {reason}"
    return Fault(what=what, where=where, path="$.model.path", hint=f"Put that file into {model.parent}.")


def _tensors(model: Path) -> list[tuple[str, int]]:
    """(file name, bytes; 0 where not stated) of each tensor with values elsewhere."""
    if model.stat().st_size == 0:
        return []
    with model.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(_KEY) < 0:
            return []
        try:
            return list(_external(data, "model", 0, len(data)))
        except (ValueError, IndexError):
            return []  # no protobuf, or cut short


def _external(data: mmap.mmap, kind: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    entries: dict[str, str] = {}
    for number, low, high in _fields(data, start, end):
        inner = _FIELDS[kind].get(number, "")
        if inner == "entry":
            parts = {
                _FIELDS["entry"][part]: data[first:last].decode("utf-8", "surrogateescape")
                for part, first, last in _fields(data, low, high)
                if part in _FIELDS["entry"]
            }
            entries[parts.get("key", "")] = parts.get("value", "")
        elif inner:
            yield from _external(data, inner, low, high)
    if "location" in entries:
        length = entries.get("length", "")
        yield entries["location"], int(length) if length.isdigit() else 0


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the length-delimited fields of one message; others are stepped over."""
    at = start
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise ValueError("cut short")
            yield number, at, at + size
            at += size
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError("no protobuf")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("no protobuf")
