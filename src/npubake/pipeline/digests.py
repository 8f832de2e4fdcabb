"""Pipeline: digests of files in the work tree, remembered by signature. Paths in, hex sha256 out.

A digest is believed while the file keeps inode, size, modification and change time; one taken while the signature was
young is not kept. The memory is only a cache: without it every file is read.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from npubake.pipeline.files import Signature, is_young, sha256_file, signature, wait_until_settled, write_atomic


class FileDigests:
    """The digests of files, kept in ``cache`` between processes. Safe to use from several threads."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._known: dict[str, list[object]] | None = None
        self._dirty = False

    def digest(self, path: Path) -> str:
        """Hex sha256 of the file; raises OSError where it cannot be read."""
        stamp = signature(path)
        known = self._entries().get(str(path))
        if known is not None and known[:4] == list(stamp):
            return str(known[4])
        while True:
            digest = sha256_file(path)
            after = signature(path)
            if after == stamp:
                break
            stamp = after  # written while it was read: read again
        self._remember(path, stamp, digest)
        return digest

    def settle(self, paths: list[Path]) -> dict[Path, tuple[Signature, str]]:
        """Signature and digest of each file, taken when a later write must change the signature."""
        wait_until_settled([signature(path) for path in paths])
        settled = {}
        for path in paths:
            digest = self.digest(path)
            settled[path] = (signature(path), digest)
        return settled

    def save(self) -> None:
        """Keep the memory for the next process."""
        with self._lock:
            if self._dirty and self._known is not None:
                self._dirty = False
                write_atomic(self._cache, json.dumps(self._known, separators=(",", ":")).encode(), "digests")

    def _remember(self, path: Path, stamp: Signature, digest: str) -> None:
        if not is_young(stamp, time.time_ns()):
            with self._lock:
                self._entries()[str(path)] = [*stamp, digest]
                self._dirty = True

    def _entries(self) -> dict[str, list[object]]:
        if self._known is None:
            try:
                known = json.loads(self._cache.read_bytes())
            except (OSError, ValueError):
                known = {}
            self._known = known if isinstance(known, dict) else {}
        return self._known
