"""Qualcomm toolchain: the archive that a binary for several SoCs is: its members, and its time stamp. Bytes in and out.

For ``soc_model`` ``77,82`` the compiler writes a ZIP archive of stored members whose checksums are left 0 (Python's
``zipfile`` refuses to read those): ``htp.cache.<soc>.<n>``, a context binary for each SoC; weights that they share; and
``dlc.metadata<version>``, JSON that holds the time of the compile. All seen in what QNN 2.51.0 writes.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile

from npubake.errors import Fault, StageError

NO_TIME = "1980-01-01 00:00:00 UTC"  # the first moment that a ZIP archive can hold; as long as the compiler's own
_STAMP = re.compile(rb'("timestamp": )"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"')
_LOCAL_HEADER = 30  # bytes before a member's name (APPNOTE.TXT 4.3.7)
_BINARY_PREFIX, _METADATA_PREFIX = "htp.cache.", "dlc.metadata"


def is_archive(binary: bytes) -> bool:
    """Whether a compiled binary is for several SoCs."""
    return binary[:4] == b"PK\x03\x04"


def context_binaries(archive: bytes) -> dict[str, bytes]:
    """The context binaries in it, by the members' names, sorted. Raises StageError for a damaged archive."""
    found = {name: archive[start:end] for name, (start, end) in sorted(_members(archive).items())}
    return {name: data for name, data in found.items() if name.startswith(_BINARY_PREFIX)}


def without_time(archive: bytes) -> bytes:
    """The same archive with the time of the compile set to ``NO_TIME``, so that equal inputs give equal bytes; nothing
    else changes. Raises StageError where the time is not where it is known to be.
    """
    for name, (start, end) in _members(archive).items():
        if name.startswith(_METADATA_PREFIX):
            member, stamps = _STAMP.subn(rb'\g<1>"' + NO_TIME.encode() + rb'"', archive[start:end])
            if stamps and stamps == archive[start:end].count(b'"timestamp"'):
                return archive[:start] + member + archive[end:]
    raise _damaged("the time of the compile does not stand where it is known to")


def _members(archive: bytes) -> dict[str, tuple[int, int]]:
    """Where each member's bytes lie. Read by hand: the checksums are 0."""
    places = {}
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as listing:
            for entry in listing.infolist():
                name, extra = struct.unpack_from("<HH", archive, entry.header_offset + _LOCAL_HEADER - 4)
                start = entry.header_offset + _LOCAL_HEADER + name + extra
                places[entry.filename] = (start, start + entry.file_size)
                if entry.compress_type != zipfile.ZIP_STORED or start + entry.file_size > len(archive):
                    raise _damaged(f"member {entry.filename} is not stored whole")
    except (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, EOFError) as error:
        raise _damaged(str(error)) from error
    return places


def _damaged(why: str) -> StageError:
    what = f"the binary for several SoCs cannot be read: {why}"
    return StageError(Fault(what=what, hint="compile again with the locked version of onnxruntime-qnn"))
