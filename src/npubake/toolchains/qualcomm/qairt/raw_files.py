"""Qualcomm toolchain, SDK road: input lists and raw files, as the converters, the quantizer and qnn-net-run read them.

A raw file is a tensor's values in C order, little endian, without a head: float32 unless the tool was told that files
are in the graph's own type (``--use_native_input_files``). A list has a line an example; a line has a path, or with
several inputs ``name:=path`` for each, separated by spaces. A line that begins with ``#`` or ``%`` chooses outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError

LIST = "input_list.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """One file of one example: its path, relative to the list, and its bytes."""

    path: str
    data: bytes


def raw_bytes(values: NDArray[Any], dtype: str = "float32") -> bytes:
    """C order, little endian, of ``dtype``; shapes leave no trace. Integers of a model stay what they are with their
    own ``dtype``.
    """
    return np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()


def read_raw(data: bytes, dtype: str, shape: Sequence[int], where: str) -> NDArray[Any]:
    """What a tool wrote, in C order. Raises StageError where the size is not the tensor's."""
    kind = np.dtype(dtype).newbyteorder("<")
    wanted = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if len(data) != wanted:
        what = f"the file has {len(data)} bytes, a tensor {dtype}{list(shape)} has {wanted}"
        hint = "the tool was asked for files in the graph's own types; a float file of an integer tensor is larger"
        raise StageError(Fault(what=what, where=where, hint=hint))
    return np.frombuffer(data, kind).reshape(tuple(shape)).astype(np.dtype(dtype))


def files_of(index: int, example: Mapping[str, NDArray[Any]], dtypes: Mapping[str, str] | None = None) -> list[RawFile]:
    """One example's files: ``raw/00000_<input>.raw``. dtypes: of inputs that are not float32."""
    chosen = dtypes or {}
    return [
        RawFile(path=f"raw/{index:05d}_{file_name(name)}.raw", data=raw_bytes(value, chosen.get(name, "float32")))
        for name, value in example.items()
    ]


def list_text(inputs: Sequence[str], count: int) -> str:
    """The list of ``count`` examples. inputs: names, in the graph's order. Raises StageError for a name that a list
    cannot hold, or two that give one file.
    """
    _refuse(inputs)
    lines = []
    for index in range(count):
        paths = [f"raw/{index:05d}_{file_name(name)}.raw" for name in inputs]
        named = [f"{name}:={path}" for name, path in zip(inputs, paths, strict=True)]
        lines.append(" ".join(named) if len(inputs) > 1 else paths[0])
    return "".join(f"{line}\n" for line in lines)


def file_name(tensor: str) -> str:
    """A tensor's name as the SDK's own tools write it to files and C++: what is no letter, digit or _ becomes _."""
    return re.sub(r"[^A-Za-z0-9_]", "_", tensor)


def _refuse(inputs: Iterable[str]) -> None:
    names = list(inputs)
    faults = [
        Fault(what=f"an input list cannot name {name!r}: it holds a space, or begins like a line of outputs")
        for name in names
        if len(names) > 1 and (any(letter.isspace() for letter in name) or name[:1] in ("#", "%") or ":=" in name)
    ]
    files = [file_name(name) for name in names]
    faults += [
        Fault(what=f"inputs {', '.join(map(repr, names))} would share the file name {name!r}", hint="rename one")
        for name in dict.fromkeys(files)
        if files.count(name) > 1
    ]
    if faults:
        raise StageError(*faults)
