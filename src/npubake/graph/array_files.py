"""graph: npy and npz files become plain arrays, or the reason why not. Bytes in, numpy out; no pickles, no faults."""

from __future__ import annotations

import io
import lzma
import tokenize
import zipfile
import zlib
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_UNPACKED = 4 << 30  # bytes of all members together: beyond it a small file is a decompression bomb
# What zipfile, its decompressors and numpy's header parser raise for changed bytes: found by changing them at random.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    OverflowError,
    SyntaxError,
    MemoryError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class UnreadableArrayError(Exception):
    """Why bytes are no plain arrays. member: the array of an npz; pickled: they hold objects, never loaded."""

    def __init__(self, reason: str, *, member: str = "", pickled: bool = False) -> None:
        super().__init__(reason)
        self.member = member
        self.pickled = pickled


def read_npy(data: bytes) -> NDArray[Any]:
    """The array of one npy file: booleans, integers or floats in native byte order. Raises UnreadableArrayError."""
    stream = io.BytesIO(data)
    try:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except _DAMAGE as error:
        pickled = "allow_pickle" in str(error) or "Object arrays" in str(error) or data[:1] == b"\x80"
        raise UnreadableArrayError(_reason(error), pickled=pickled) from error
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise UnreadableArrayError(f"it holds {array.dtype}, not plain numbers")
    if stream.read(1):
        raise UnreadableArrayError("bytes are left over after the array")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_npz(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of one npz file by name. Raises UnreadableArrayError."""
    arrays = {}
    for member, content in read_zip(data).items():
        name = member.removesuffix(".npy")
        try:
            arrays[name] = read_npy(content)
        except UnreadableArrayError as error:
            raise UnreadableArrayError(str(error), member=name, pickled=error.pickled) from error
    return arrays


def read_zip(data: bytes) -> dict[str, bytes]:
    """The members of a zip file. Raises UnreadableArrayError where it is damaged, unpacks to too much, or has two
    members of one name, of which one would be left out without a word.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MAX_UNPACKED:
                raise UnreadableArrayError(f"{len(data)} bytes unpack to {size}; at most {MAX_UNPACKED} are read")
            twice = [name for name, count in Counter(archive.namelist()).items() if count > 1]
            if twice:
                raise UnreadableArrayError("another array has its name too", member=twice[0].removesuffix(".npy"))
            return {name: archive.read(name) for name in archive.namelist()}
    except _DAMAGE as error:
        raise UnreadableArrayError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]
