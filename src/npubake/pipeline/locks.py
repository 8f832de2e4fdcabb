"""Pipeline: file locks that die with their process (flock). No policy."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file ``path`` alone; ``on_wait`` is called once when another holds it. The file goes afterwards."""
    descriptor = acquire(path, on_wait)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is held: who waits for it sees that the file is gone, and makes it anew
        os.close(descriptor)


def acquire(path: Path, on_wait: Callable[[], None] = lambda: None) -> int:
    """An open descriptor that holds the lock file alone; closing it lets go."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)


def try_exclusive(path: Path) -> int | None:
    """An open descriptor that holds the lock file alone, or None when another process does."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold the lock file together with others, against those who want it alone; the file stays."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    return False
