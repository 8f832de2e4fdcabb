"""calibration: npy, npz and torch files become named arrays, or are refused. Bytes in, numpy out; no pickles."""

from __future__ import annotations

import importlib
import io
import pickle
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, RecipeError, ToolchainError

SUFFIXES = (".npy", ".npz", ".pt", ".pth")
LABELS = ("label", "labels")
_PICKLE_HINT = "save plain numeric arrays: np.save(name, np.asarray(x, dtype=...))"


def read_arrays(data: bytes, *, name: str, labels: bool = False) -> dict[str, NDArray[Any]]:
    """Arrays of one file by name; a file that holds one unnamed array gives it under ``''``. Labels (arrays of
    that name in an npz or torch file) are left out unless they are asked for.

    Raises RecipeError with one Fault that names the file; ToolchainError where a torch file needs torch.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in (".pt", ".pth"):
        named = _read_torch(data, name)
    elif suffix == ".npz":
        named = _read_npz(data, name)
    else:
        named = {"": _read_npy(data, name)}
    return {key: value for key, value in named.items() if labels or key not in LABELS}


def _read_npy(data: bytes, name: str, member: str = "") -> NDArray[Any]:
    what = f"its array {member!r} " if member else "it "
    stream = io.BytesIO(data)
    try:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        pickled = "allow_pickle" in str(error) or "Object arrays" in str(error) or data[:1] == b"\x80"
        if pickled:
            raise _refused(name, f"{what}holds pickled objects, which are never loaded", _PICKLE_HINT) from error
        raise _refused(name, f"{what}is corrupt or truncated, or no npy: {error}", "write it again") from error
    except (OSError, EOFError, SyntaxError) as error:
        raise _refused(name, f"{what}is corrupt or truncated, or no npy: {error}", "write it again") from error
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise _refused(name, f"{what}holds {array.dtype}, not plain numbers", _PICKLE_HINT)
    if stream.read(1):
        raise _refused(name, f"{what}has bytes left over after the array", "write it again")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_npz(data: bytes, name: str) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {entry.removesuffix(".npy"): archive.read(entry) for entry in archive.namelist()}
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _refused(name, f"it is corrupt or truncated, or no npz: {error}", "write it again") from error
    return {member: _read_npy(part, name, member) for member, part in members.items()}


def _read_torch(data: bytes, name: str) -> dict[str, NDArray[Any]]:
    try:
        torch: Any = importlib.import_module("torch")  # an extra, needed for torch files only
    except ImportError as error:
        raise ToolchainError(
            Fault(what="torch is needed to read a torch file, and is not installed", where=name,
                  hint="install the extra 'train', or save the tensors as npy")
        ) from error  # fmt: skip
    try:
        loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # what weights_only raises for anything but tensors
        raise _refused(
            name, "it holds pickled code, which is never loaded", "save plain tensors: torch.save(x)"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise _refused(name, f"it is corrupt or truncated: {error}", "write it again") from error
    named = loaded if isinstance(loaded, dict) else {"": loaded}
    if not named or not all(isinstance(value, torch.Tensor) for value in named.values()):
        raise _refused(name, "it holds something else than tensors", "save one tensor, or a dictionary of tensors")
    return {str(key): value.detach().numpy() for key, value in named.items()}


def _refused(name: str, what: str, hint: str) -> RecipeError:
    return RecipeError(Fault(what=what, where=name, hint=hint))
