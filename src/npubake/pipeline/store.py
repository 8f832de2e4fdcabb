"""Pipeline: blobs by digest and records by key, shared by projects and processes. Bytes in, the same bytes out.

``cas/ab/cdef…`` blobs (mode 0444), ``ac/ab/cdef….json`` records, ``lock/`` one file per key at work, ``tmp/`` private
folders. Writes go: blob synced, blob named, then the record. Whatever is read is checked against its digest first; what
does not fit is dropped and counts as absent. Raises StoreError where the store cannot be read or written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from npubake.errors import Fault, StoreError
from npubake.pipeline import failpoints, locks
from npubake.pipeline.files import copy_atomic, copy_bytes, sha256_file, write_atomic
from npubake.pipeline.key import canonical, key

_STAMP_EVERY_S = 3600.0  # a record's time of last use is coarse, so that reading hardly ever writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """An output: hex sha256 of its bytes, and their count."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a finished task made, and from what. machine: facts that are recorded, never hashed into a key."""

    outputs: Mapping[str, Blob]
    dictionary: Mapping[str, Any]
    seconds: float
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key under which it is kept."""
        return key(self.dictionary)


class Store:
    """A store at ``root``; made on the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def blob_path(self, digest: str) -> Path:
        """Where the blob lies, if it is there. To be read only."""
        return self.root / "cas" / digest[:2] / digest[2:]

    def has(self, digest: str) -> bool:
        """Whether the blob is there (its bytes are not looked at)."""
        with self._faults("read"):
            return _exists(self.blob_path(digest))

    def verified(self, digest: str) -> bool:
        """Whether the blob is there and its bytes are right; a damaged one is dropped."""
        with self._faults("read"):
            path = self.blob_path(digest)
            if not _exists(path):
                return False
            if sha256_file(path) == digest:
                return True
            self._drop(path)
            return False

    def read(self, digest: str) -> bytes | None:
        """The blob's bytes, checked; None where it is absent or damaged."""
        if not self.verified(digest):
            return None
        with self._faults("read"):
            return self.blob_path(digest).read_bytes()

    def put(self, data: bytes, digest: str) -> None:
        """Keep bytes that can be made again at any time (not synced)."""
        if not self.has(digest):
            with self._faults("write"):
                write_atomic(self.blob_path(digest), data, "source", mode=0o444)

    def put_file(self, path: Path) -> str:
        """Keep a copy of a source file (not synced: the file is still there). Returns the digest of what was copied."""
        with self.workspace() as folder:
            copy = folder / "copy"
            with self._faults("write"):
                descriptor = os.open(copy, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
                try:
                    digest = copy_bytes(path, descriptor)
                    os.fchmod(descriptor, 0o444)
                finally:
                    os.close(descriptor)
                self._name(copy, digest, "source")
        return digest

    def adopt(self, path: Path) -> Blob:
        """Move a finished file of a workspace in, synced."""
        with self._faults("write"):
            blob = Blob(digest=sha256_file(path), size=path.stat().st_size)
            failpoints.reach("blob.written")
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fchmod(descriptor, 0o444)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            failpoints.reach("blob.synced")
            self._name(path, blob.digest, "blob")
        return blob

    def restore(self, digest: str, path: Path) -> bool:
        """Replace ``path`` by a copy of the blob; False, and nothing done, where the blob is absent or damaged."""
        blob = self.blob_path(digest)
        with self._faults("read", f"cannot write {path}", path):
            if not _exists(blob):
                return False
            if copy_atomic(blob, path, "publish", expected=digest):
                return True
        self._drop(blob)
        return False

    def record(self, wanted: str) -> Record | None:
        """The record of a key, if it is whole and all its blobs are there."""
        path = self._record_path(wanted)
        with self._faults("read"):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                return None
        record = _parse(text)
        if record is None or record.key != wanted or not all(self.has(blob.digest) for blob in record.outputs.values()):
            return None
        with contextlib.suppress(OSError):  # the time of last use serves gc alone
            if time.time() - path.stat().st_mtime > _STAMP_EVERY_S:
                os.utime(path)
        return record

    def write_record(self, record: Record) -> None:
        """Keep the record; all its blobs must be there already."""
        content = asdict(record)
        content["sum"] = key(content)
        with self._faults("write"):
            write_atomic(self._record_path(record.key), canonical(content), "record", durable=True, mode=0o444)

    def forget(self, wanted: str) -> None:
        """Drop the record of a key."""
        with self._faults("write"):
            self._record_path(wanted).unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, wanted: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Work on a key alone; ``on_wait`` is called once when another build is at it."""
        folder = self.root / "lock"
        with contextlib.ExitStack() as stack:
            with self._faults("write"):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locks.exclusive(folder / wanted, on_wait))
            yield

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep gc and fsck away while a build is at work (they cannot work either where this lock cannot be made)."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self.root.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locks.shared(self.root / "users"))
            yield

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder on the store's file system; what a killed process left is swept by the next build."""
        with self._faults("write"):
            folder = self.root / "tmp"
            folder.mkdir(parents=True, exist_ok=True)
            name = uuid.uuid4().hex
            held = locks.acquire(folder / f"{name}.lock")
            (folder / name).mkdir(mode=0o700)
        try:
            yield folder / name
        finally:
            shutil.rmtree(folder / name, ignore_errors=True)
            with contextlib.suppress(OSError):
                (folder / f"{name}.lock").unlink()
            os.close(held)

    def sweep(self) -> None:
        """Remove the folders of processes that are gone."""
        folder = self.root / "tmp"
        with contextlib.suppress(OSError):
            for lock in sorted(folder.glob("*.lock")):
                held = locks.try_exclusive(lock)
                if held is not None:
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink(missing_ok=True)
                    os.close(held)

    def _record_path(self, wanted: str) -> Path:
        return self.root / "ac" / wanted[:2] / f"{wanted[2:]}.json"

    def _name(self, path: Path, digest: str, point: str) -> None:
        blob = self.blob_path(digest)
        if _exists(blob) and sha256_file(blob) == digest:
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        path.replace(blob)
        failpoints.reach(f"{point}.named")

    def _drop(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # a damaged blob in a store that cannot be written is still not served
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _faults(self, action: str, what: str = "", where: Path | None = None) -> Iterator[None]:
        """Turn an OSError into a StoreError that says what to do."""
        try:
            yield
        except OSError as error:
            said = what or f"the store cannot be {'written' if action == 'write' else action}"
            refused = refusal(error, said, where or self.root)
            if refused is None:
                raise
            raise refused from error


def refusal(error: OSError, said: str, where: Path) -> StoreError | None:
    """The StoreError for a disk that is full, not writable or failing; None for other errors. said: what cannot be."""
    reason = _REASONS.get(error.errno or 0)
    if reason is None:
        return None
    found, hint = reason
    return StoreError(Fault(what=f"{said}: {found}", where=str(where), hint=hint))


_SPACE = "free some space (`npubake cache gc`), or set NPUBAKE_STORE to another folder; finished stages are kept"
_RIGHTS = "give this user write access, or set NPUBAKE_STORE to a folder of your own"
_REASONS: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("no space left on the device", _SPACE),
    errno.EDQUOT: ("the disk quota is used up", _SPACE),
    errno.EFBIG: ("the file is larger than this file system or process may write", _SPACE),
    errno.EROFS: ("the file system is read-only", _RIGHTS),
    errno.EACCES: ("permission denied", _RIGHTS),
    errno.EPERM: ("operation not permitted", _RIGHTS),
    errno.ENOTDIR: ("a file stands where a folder belongs", "set NPUBAKE_STORE to a folder"),
    errno.EEXIST: ("a file stands where a folder belongs", "set NPUBAKE_STORE to a folder"),
    errno.EIO: ("the device reports an input/output error", "check the disk, then run `npubake cache fsck`"),
}


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _parse(text: bytes) -> Record | None:
    """The record in ``text``, or None where it is cut off or altered."""
    try:
        content = json.loads(text)
        claimed = content.pop("sum")
        if key(content) != claimed:
            return None
        outputs = {port: Blob(**blob) for port, blob in content.pop("outputs").items()}
        return Record(outputs=outputs, **content)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
