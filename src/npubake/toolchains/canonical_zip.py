"""Toolchains room: a zip with one possible form for its contents. Bytes only.

Entries are sorted by name and stored, with one time stamp and one mode. As the form is unique, a file is checked byte
by byte by writing its entries again: whatever was changed, added, cut off or hidden between entries shows as a
difference.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from npubake.errors import Fault, StageError

_TIME = (1980, 1, 1, 0, 0, 0)


def write(entries: Mapping[str, bytes]) -> bytes:
    """The file's bytes; the same entries give the same bytes everywhere."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system = 3  # unix, whatever wrote it
            info.external_attr = 0o644 << 16
            archive.writestr(info, entries[name], zipfile.ZIP_STORED)
    return buffer.getvalue()


def read(data: bytes, where: str) -> dict[str, bytes]:
    """Entries of a file that ``write`` made. Raises StageError where a single byte is otherwise."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise StageError(_damaged(where, "an entry of it is compressed"))
            if sum(entry.file_size for entry in archive.infolist()) > len(data):
                raise StageError(_damaged(where, "its entries claim more bytes than the file has"))
            entries = {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, OSError) as error:
        raise StageError(_damaged(where, f"it is no intact archive: {error}")) from error
    if len(entries) != len(names):
        raise StageError(_damaged(where, "an entry stands in it twice"))
    again = write(entries)
    if again != data:
        pairs = zip(again, data, strict=False)
        at = next((index for index, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(again), len(data)))
        raise StageError(_damaged(where, f"byte {at} is not what its entries make ({len(data)} bytes)"))
    return entries


def _damaged(where: str, what: str) -> Fault:
    return Fault(
        where=where, what=what, hint="the file was cut off or changed after it was built; take it from the build again"
    )
