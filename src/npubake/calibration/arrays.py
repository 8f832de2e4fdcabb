"""calibration: npy, npz and torch files become named arrays, or are refused. Bytes in, numpy out; no pickles."""

from __future__ import annotations

import importlib
import io
import pickle
from pathlib import PurePosixPath
from typing import Any

from numpy.typing import NDArray

from npubake.errors import Fault, RecipeError, ToolchainError
from npubake.graph.array_files import UnreadableArrayError, read_npy, read_npz

SUFFIXES = (".npy", ".npz", ".pt", ".pth")
LABELS = ("label", "labels")
_PICKLE_HINT = "save plain numeric arrays again: np.save(name, np.asarray(x, dtype=...))"


def read_arrays(data: bytes, *, name: str, labels: bool = False) -> dict[str, NDArray[Any]]:
    """Arrays of one file by name; a file that holds one unnamed array gives it under ``''``. Labels (arrays of
    that name in an npz or torch file) are left out unless they are asked for.

    Raises RecipeError with one Fault that names the file; ToolchainError where a torch file needs torch.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in (".pt", ".pth"):
        named = _read_torch(data, name)
    else:
        named = _plain(data, name, ".npz" if suffix == ".npz" else ".npy")
    return {key: value for key, value in named.items() if labels or key not in LABELS}


def _plain(data: bytes, name: str, suffix: str) -> dict[str, NDArray[Any]]:
    try:
        return read_npz(data) if suffix == ".npz" else {"": read_npy(data)}
    except UnreadableArrayError as error:
        what = f"its array {error.member!r}" if error.member else "it"
        if error.pickled:
            raise _refused(name, f"{what} holds pickled objects, which are never loaded", _PICKLE_HINT) from error
        raise _refused(name, f"{what} is corrupt or truncated, or no {suffix[1:]} of plain numbers: {error}",
                       _PICKLE_HINT) from error  # fmt: skip


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
