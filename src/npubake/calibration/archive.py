"""calibration: deterministic npz archives, written and read entry by entry. Paths and arrays only; no images, no onnx.

Entries are stored, never compressed, with one fixed time stamp and mode, in the order in which they were written, so
that the same entries give the same bytes on every machine. Reading takes one entry at a time into fresh memory,
without mmap, so that the resident size does not grow with the archive.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError

_TIME = (1980, 1, 1, 0, 0, 0)


class ArchiveWriter:
    """A context manager that writes a deterministic zip of arrays, JSON and files."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._zip.close()

    def bytes(self, name: str, data: bytes) -> None:
        entry = zipfile.ZipInfo(name, _TIME)
        entry.create_system = 3  # unix, whatever wrote it
        entry.external_attr = 0o644 << 16
        self._zip.writestr(entry, data, zipfile.ZIP_STORED)

    def json(self, name: str, value: object) -> None:
        """Canonical JSON: sorted keys; NaN and Inf are a bug of the caller."""
        self.bytes(name, (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode())

    def array(self, name: str, value: NDArray[Any]) -> None:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(value, order="C"), version=(1, 0), allow_pickle=False)
        self.bytes(name, buffer.getvalue())


class ArchiveReader:
    """A context manager over an archive of this project; StageError where it is damaged or something else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise self._damaged(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._zip.close()

    def _damaged(self, why: str) -> StageError:
        return StageError(Fault(what=f"not an archive that npubake wrote: {why}", where=self._path.name))

    def bytes(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except (KeyError, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise self._damaged(str(error)) from error

    def json(self, name: str) -> Any:
        return json.loads(self.bytes(name))

    def array(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(self.bytes(name)), allow_pickle=False)
        return array
