"""Toolchains room: files become one example's values. Paths in, arrays by input and notes out; no model is run.

A picture goes through the contract's ``preprocessing`` (resize, pad, crop), then through the linear step where that is
the application's. An array is fed as it is: a runtime tensor, uint8 pixels [H, W, C], or the model's own tensor. Its
batch of one may be left out, and of a stack of examples one row is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.arrays import LABELS
from npubake.calibration.images import SUFFIXES, decode_image
from npubake.calibration.preprocessing import Geometry
from npubake.errors import Fault, RecipeError, UsageError
from npubake.graph.array_files import UnreadableArrayError, read_npy, read_npz
from npubake.toolchains import pictures

_ROW = re.compile(r"(.+\.np[yz])\[(\d+)\]", re.IGNORECASE)
Form = tuple[str, tuple[int, ...]]  # numpy's name of the dtype, shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that was fed. pixels: uint8 [height, width, channels] as decoded; geometry: its place in the frame."""

    path: Path
    pixels: NDArray[np.uint8]
    geometry: Geometry


@dataclass(slots=True)
class Fed:
    """One example. values: by model input or runtime tensor; pictures: by model input; notes: for people."""

    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One example that was run. outputs: real values by name; fed: with its pictures and notes for people."""

    outputs: dict[str, NDArray[Any]]
    fed: Fed


def feed(contract: Mapping[str, Any], files: Sequence[tuple[str, Path]], example: int | None = None) -> Fed:
    """Read the files of one example. files: (input name, image, .npy or .npz), the path of an array file with the row
    of a stack in brackets; the name may be '' where the model has one input. example: the row, where no brackets stand.

    Raises UsageError, all faults at once, for files and arrays that cannot be fed.
    """
    takes = accepted(contract)
    owners = list(dict.fromkeys(entry["model_input"] for entry in contract["inputs"]))
    fed, faults = Fed(), list[Fault]()
    for given, path in files:
        name = given or (owners[0] if len(owners) == 1 else "")
        path, row = _row_of(path, example)
        try:
            found = _read(path, name, contract, fed)
        except (UsageError, RecipeError) as error:
            faults += error.faults
            continue
        found = _named(found, name, given, takes, path, fed)
        for key, array in found.items():
            if key in fed.values:
                hint = "one example is run at a time; NAME=FILE says which input a file is for"
                faults.append(Fault(where=path.name, what=f"a second file for the input {key!r}", hint=hint))
            elif key not in takes:
                faults.append(_unknown(path, key, given, takes))
            else:
                value = _fitted(array, takes[key], row, path, key)
                if isinstance(value, Fault):
                    faults.append(value)
                else:
                    fed.values[key] = value
    faults = faults or _absent(contract, fed.values)
    if faults:
        raise UsageError(*faults)
    return fed


def accepted(contract: Mapping[str, Any]) -> dict[str, list[Form]]:
    """What each runtime tensor and each model input may be fed as."""
    takes: dict[str, list[Form]] = {}
    for entry in contract["inputs"]:
        takes.setdefault(entry["name"], []).append((entry["dtype"], tuple(entry["valid_shape"])))
    for name, (dtype, shape) in pictures.model_inputs(contract).items():
        if (dtype, tuple(shape)) not in takes.setdefault(name, []):
            takes[name].append((dtype, tuple(shape)))
    return takes


def _row_of(path: Path, example: int | None) -> tuple[Path, int | None]:
    """``FILE.npz[3]``, unless a file has that very name."""
    match = None if path.is_file() else _ROW.fullmatch(str(path))
    return (path, example) if match is None else (Path(match[1]), int(match[2]))


def _read(path: Path, name: str, contract: Mapping[str, Any], fed: Fed) -> dict[str, NDArray[Any]]:
    suffix = path.suffix.lower()
    if not path.is_file():
        hint = "name an image, .npy or .npz; relative paths count from the current folder"
        raise UsageError(Fault(where=str(path), what="there is no such file", hint=hint))
    if suffix in SUFFIXES:
        return {name: _picture(path, name, contract, fed)}
    if suffix not in (".npy", ".npz"):
        hint = f"an image ({', '.join(SUFFIXES)}), .npy or .npz"
        raise UsageError(Fault(where=path.name, what=f"{suffix or 'no suffix'} is not read", hint=hint))
    try:
        data = path.read_bytes()
        return {name: read_npy(data)} if suffix == ".npy" else read_npz(data)
    except (OSError, UnreadableArrayError) as error:
        hint = "write plain numbers: np.save, or np.savez with an array for each input"
        raise UsageError(Fault(where=path.name, what=f"it is no intact {suffix} file: {error}", hint=hint)) from error


def _picture(path: Path, name: str, contract: Mapping[str, Any], fed: Fed) -> NDArray[Any]:
    """Pixels in the model's frame, or what the linear step makes of them where the model takes floats."""
    block = contract["preprocessing"]
    if block is None:
        hint = "the model was built for prepared tensors: feed an .npy file"
        raise UsageError(Fault(where=path.name, what="no preprocessing of pictures belongs to this model", hint=hint))
    steps = pictures.steps(block, name)
    if steps is None:
        hint = f"write NAME={path} with one of {', '.join(sorted(block['inputs'])) or 'no input: feed arrays'}"
        raise UsageError(Fault(where=path.name, what=f"the input {name!r} takes no picture", hint=hint))
    pixels = decode_image(path.read_bytes(), name=path.name, channels=steps.channels)
    if not steps.fits((pixels.shape[0], pixels.shape[1])):
        hint = "feed a larger picture"
        raise UsageError(Fault(where=path.name, what=f"it is smaller than the crop of {steps.crop}", hint=hint))
    framed, geometry = steps.spatial(pixels)
    fed.pictures[name] = Picture(path=path, pixels=pixels, geometry=geometry)
    return framed if block["inputs"][name]["linear_step"] == "model" else steps.linear.apply(framed)


def _named(
    found: dict[str, NDArray[Any]], name: str, given: str, takes: Mapping[str, Any], path: Path, fed: Fed
) -> dict[str, NDArray[Any]]:
    """The arrays of a file that are inputs. One array under any name is the one that is meant; what is beside the
    model's inputs is left out with a note.
    """
    if path.suffix.lower() != ".npz":
        return found
    known = {key: array for key, array in found.items() if key in takes and given in ("", key)}
    others = {key: array for key, array in found.items() if key not in known}
    if not known:
        unnamed = [key for key in others if key not in LABELS]
        if name and len(unnamed) == 1:
            known = {name: others.pop(unnamed[0])}
            fed.notes.append(f"{path.name}: the array {unnamed[0]!r} is taken for the input {name!r}")
        else:
            return {key: others[key] for key in unnamed} or others
    if others:
        fed.notes.append(f"{path.name}: left out, as the model has no such input: {', '.join(sorted(others))}")
    return known


def _unknown(path: Path, key: str, given: str, takes: Mapping[str, Any]) -> Fault:
    names = ", ".join(sorted(takes))
    if path.suffix.lower() == ".npz":
        hint = f"name its arrays after the inputs ({names}): np.savez({path.name!r}, {min(takes)}=...)"
        return Fault(where=path.name, what=f"the array {key!r} is no input of the model", hint=hint)
    hint = f"write NAME={path} with one of {names}"
    return Fault(where=path.name, what=f"there is no input {key!r}" if given else "which input?", hint=hint)


def _fitted(array: NDArray[Any], forms: Sequence[Form], row: int | None, path: Path, name: str) -> NDArray[Any] | Fault:
    """The array, or the row of it that is asked for, in one of the forms; or why not."""
    dtype, shape = str(array.dtype), array.shape
    stack = shape[1:] in {variant for form in forms if form[0] == dtype for variant in _variants(form)}
    whole = [form for form in forms if form[0] == dtype and shape in _variants(form)]
    if not whole and stack:
        if row is None:
            hint = f"say which: '{path}[0]', or --example 0"
            return Fault(where=path.name, what=f"{len(array)} examples of the input {name!r}", hint=hint)
        if row < len(array):
            return _fitted(array[row], forms, None, path, name)
    if row is not None and (stack or (whole and row > 0)):
        last = 0 if whole else len(array) - 1
        return Fault(where=path.name, what=f"the input {name!r} has no row {row}", hint=f"the last row is {last}")
    if whole:
        return np.ascontiguousarray(array.reshape(whole[0][1]))
    wanted = " or ".join(f"{kind} {list(size)}" for kind, size in forms)
    what = f"{dtype} {list(shape)} is not what the input {name!r} takes"
    return Fault(where=path.name, what=what, hint=f"it takes {wanted}; a batch of one may be left out")


def _variants(form: Form) -> set[tuple[int, ...]]:
    """Shapes that mean the same: a batch of one left out or added, grey pixels without their channel."""
    dtype, shape = form
    grey = {shape[:-1]} if dtype == "uint8" and len(shape) == 3 and shape[2] == 1 else set()
    return {shape, (1, *shape), *grey, *({shape[1:]} if shape[:1] == (1,) else ())}


def _absent(contract: Mapping[str, Any], values: Mapping[str, Any]) -> list[Fault]:
    """Inputs of which neither the whole nor every runtime tensor is there, or both."""
    faults = []
    for name in dict.fromkeys(entry["model_input"] for entry in contract["inputs"]):
        parts = [entry["name"] for entry in contract["inputs"] if entry["model_input"] == name]
        given = [part for part in parts if part in values]
        if name not in values and given != parts:
            hint = f"one more file: {name}=FILE" + (f", or each of {', '.join(parts)}" if parts != [name] else "")
            faults.append(Fault(where=name, what="it is fed nothing, or not all of it", hint=hint))
        elif name in values and given not in ([], [name]):
            hint = f"leave out either {name} or {', '.join(given)}"
            faults.append(Fault(where=name, what="it is fed twice", hint=hint))
    return faults
