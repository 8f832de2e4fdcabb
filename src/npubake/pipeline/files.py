"""Pipeline: atomic writes, copies that never share bytes with their source, file signatures. Paths; no policy.

A signature is (inode, size, mtime_ns, ctime_ns); the change time notices a file that was replaced with its old size and
modification time kept. A signature is young while a second write could still leave it unchanged (coarse file clocks).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from pathlib import Path

from npubake.pipeline import failpoints
from npubake.pipeline.locks import acquire

Signature = tuple[int, int, int, int]

CLOCK_TICK_NS = 20_000_000  # kernels stamp files with their tick: 1 to 10 ms
COARSE_TICK_NS = 2_000_000_000  # file systems that keep whole seconds (FAT: two)
_FICLONE = 0x40049409  # linux/fs.h: share extents, copy on write
_CHUNK = 1 << 20


def signature(path: str | Path) -> Signature:
    """The signature of a file or folder that exists (raises OSError otherwise)."""
    facts = os.stat(path)  # noqa: PTH116 - thousands of calls: no Path is made
    return (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def is_young(stamp: Signature, now_ns: int) -> bool:
    """Whether a write after ``now_ns`` could leave this signature as it is (git calls such an entry racily clean)."""
    newest = max(stamp[2], stamp[3])
    tick = COARSE_TICK_NS if newest % 1_000_000_000 == 0 else CLOCK_TICK_NS
    return now_ns - newest < tick


def sha256_file(path: str | Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as stream:  # noqa: PTH123 - the shortest way; called once per file
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes, point: str, *, durable: bool = False, mode: int | None = None) -> None:
    """Replace ``path`` by ``data`` in one step; ``point`` names its failpoints.

    The unfinished file is ``.<name>.part`` beside it, locked while it is written, so that what a killed build left is
    overwritten by the next. durable: on the disk before it gets its name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _part(path) as (part, descriptor):
        _write_all(descriptor, data)
        _finish(part, path, descriptor, point, durable=durable, mode=mode)


def copy_atomic(source: Path, path: Path, point: str, *, expected: str) -> bool:
    """Replace ``path`` by a copy of ``source`` (a reflink where the file system can).

    False, and ``path`` as it was, where the bytes copied have another sha256 than ``expected``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _part(path) as (part, descriptor):
        if copy_bytes(source, descriptor) != expected:
            part.unlink()
            return False
        _finish(part, path, descriptor, point, durable=False, mode=None)
    return True


def copy_bytes(source: Path, descriptor: int) -> str:
    """Copy ``source`` into an open, empty file and return the sha256 of what was copied."""
    with source.open("rb") as stream:
        try:
            fcntl.ioctl(descriptor, _FICLONE, stream.fileno())
        except OSError as error:
            if error.errno not in (
                errno.EOPNOTSUPP,
                errno.EXDEV,
                errno.EINVAL,
                errno.ENOTTY,
                errno.EPERM,
                errno.ENOSYS,
            ):
                raise
            digest = hashlib.sha256()
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                _write_all(descriptor, chunk)
            return digest.hexdigest()
        return hashlib.file_digest(stream, "sha256").hexdigest()


def wait_until_settled(stamps: list[Signature]) -> None:
    """Sleep until no signature is young for the sake of the clock's tick (at most two seconds)."""
    deadline = time.monotonic() + COARSE_TICK_NS / 1e9
    while any(is_young(stamp, time.time_ns()) for stamp in stamps) and time.monotonic() < deadline:
        time.sleep(0.005)


class _part:  # noqa: N801 - a context manager, used like a function
    """An open, locked, empty ``.<name>.part`` beside ``path``; removed when the block fails."""

    def __init__(self, path: Path) -> None:
        self.part = path.with_name(f".{path.name}.part")
        self.descriptor = -1

    def __enter__(self) -> tuple[Path, int]:
        self.descriptor = acquire(self.part)
        os.ftruncate(self.descriptor, 0)
        return self.part, self.descriptor

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            with contextlib.suppress(OSError):
                self.part.unlink()
        os.close(self.descriptor)


def _finish(part: Path, path: Path, descriptor: int, point: str, *, durable: bool, mode: int | None) -> None:
    failpoints.reach(f"{point}.written")
    if mode is not None:
        os.fchmod(descriptor, mode)
    if durable:
        os.fsync(descriptor)
        failpoints.reach(f"{point}.synced")
    part.replace(path)
    failpoints.reach(f"{point}.named")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
