"""Pipeline: care of a store: what it holds, removing what is old or too much, checking every byte. Reports leave."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from npubake.errors import Fault, StoreError
from npubake.pipeline import locks
from npubake.pipeline.files import sha256_file
from npubake.pipeline.store import Record, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """What a store holds: counts, and bytes of all blobs."""

    root: str
    records: int
    blobs: int
    size: int
    oldest_use: float | None  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What gc removed, or would remove: keys of records, digests of blobs, bytes freed, bytes left."""

    keys: tuple[str, ...]
    digests: tuple[str, ...]
    freed: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What fsck looked at and dropped: damaged blobs, and records that are damaged or lost a blob."""

    blobs: int
    records: int
    damaged_blobs: tuple[str, ...]
    dropped_records: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    key: str
    used: float
    record: Record | None


def info(store: Store) -> StoreInfo:
    """Counts and sizes. Raises StoreError where the store cannot be read."""
    records = _records(store)
    sizes = _blobs(store)
    return StoreInfo(
        root=str(store.root),
        records=len(records),
        blobs=len(sizes),
        size=sum(sizes.values()),
        oldest_use=min((entry.used for entry in records), default=None),
    )


def gc(
    store: Store,
    *,
    max_size: int | None = None,
    max_age: float | None = None,
    keep: frozenset[str] = frozenset(),
    dry_run: bool = False,
) -> Collected:
    """Remove records unused for ``max_age`` seconds, then the longest unused until all fits ``max_size`` bytes.

    keep: keys and digests that stay whatever their age. Blobs that no record holds go as well. Raises StoreError while
    a build uses the store (not for a dry run).
    """
    with _alone(store) if not dry_run else contextlib.nullcontext():
        sizes, entries = _blobs(store), _records(store)
        kept = _kept(entries, sizes, max_size=max_size, max_age=max_age, keep=keep)
        needed = _held(kept, keep)
        keys = tuple(entry.key for entry in entries if entry not in kept)
        digests = tuple(digest for digest in sizes if digest not in needed)
        if not dry_run:
            for key in keys:
                store.forget(key)  # records first: a record always finds its blobs
            for digest in digests:
                store.blob_path(digest).unlink(missing_ok=True)
            store.sweep()
    freed = sum(sizes[digest] for digest in digests)
    return Collected(keys=keys, digests=digests, freed=freed, left=sum(sizes.values()) - freed)


def fsck(store: Store) -> Checked:
    """Read every byte; drop damaged blobs and the records that cannot be served. Their tasks will run again."""
    with _alone(store):
        blobs = _blobs(store)
        damaged = tuple(digest for digest in blobs if sha256_file(store.blob_path(digest)) != digest)
        for digest in damaged:
            store.blob_path(digest).unlink(missing_ok=True)
        entries = _records(store)
        dropped = tuple(entry.key for entry in entries if entry.record is None)
        for key in dropped:
            store.forget(key)
    return Checked(blobs=len(blobs), records=len(entries), damaged_blobs=damaged, dropped_records=dropped)


def _kept(
    entries: list[_Entry], sizes: dict[str, int], *, max_size: int | None, max_age: float | None, keep: frozenset[str]
) -> list[_Entry]:
    """The records that stay: those asked for, then the youngest, as many as fit."""
    whole = [entry for entry in entries if entry.record is not None]
    asked = [entry for entry in whole if entry.key in keep]
    oldest = time.time() - max_age if max_age is not None else 0.0
    held = _held(asked, keep) & sizes.keys()
    total = sum(sizes[digest] for digest in held)
    kept = list(asked)
    for entry in sorted((e for e in whole if e not in asked), key=lambda e: (-e.used, e.key)):
        if entry.used < oldest:
            break
        more = _held([entry], frozenset()) - held
        size = sum(sizes[digest] for digest in more)
        if max_size is not None and total + size > max_size:
            break
        held |= more
        total += size
        kept.append(entry)
    return kept


def _held(entries: list[_Entry], keep: frozenset[str]) -> set[str]:
    outputs = {blob.digest for entry in entries if entry.record for blob in entry.record.outputs.values()}
    return outputs | keep


def _records(store: Store) -> list[_Entry]:
    entries = []
    for path in _files(store.root / "ac"):
        key = path.parent.name + path.name.removesuffix(".json")
        with contextlib.suppress(FileNotFoundError):  # another process may drop it meanwhile
            used = path.stat().st_mtime
            entries.append(_Entry(key=key, used=used, record=store.record(key)))
    return entries


def _blobs(store: Store) -> dict[str, int]:
    sizes = {}
    for path in _files(store.root / "cas"):
        with contextlib.suppress(FileNotFoundError):
            sizes[path.parent.name + path.name] = path.stat().st_size
    return sizes


def _files(folder: Path) -> Iterator[Path]:
    """The entries two levels down, in the order of their names; unfinished ``.….part`` files are left out."""
    try:
        for inner in sorted(folder.iterdir()):
            yield from sorted(path for path in inner.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return
    except (PermissionError, NotADirectoryError) as error:
        fault = Fault(
            what=f"the store cannot be read: {error.strerror}", where=str(folder), hint="give this user access"
        )
        raise StoreError(fault) from error


@contextlib.contextmanager
def _alone(store: Store) -> Iterator[None]:
    if not store.root.is_dir():
        yield
        return
    try:
        held = locks.try_exclusive(store.root / "users")
    except OSError as error:
        fault = Fault(what=f"the store cannot be written: {error.strerror}", where=str(store.root))
        raise StoreError(fault) from error
    if held is None:
        what = "a build is using the store"
        raise StoreError(Fault(what=what, where=str(store.root), hint="wait until it has ended, or stop it"))
    try:
        yield
    finally:
        os.close(held)
