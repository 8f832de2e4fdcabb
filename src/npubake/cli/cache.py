"""Command line room: ``cache info``, ``cache gc`` and ``cache fsck``."""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from npubake.cli import root
from npubake.errors import Fault, StoreError, UsageError
from npubake.report.tables import size_text

if TYPE_CHECKING:
    from npubake.pipeline.project import Project

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DIGITS = 18  # a number with more of them is larger than any disk, and stays so with these
_DAY_S = 86400.0


def run_cache_info(arguments: argparse.Namespace) -> int:
    """``npubake cache info``."""
    from npubake.pipeline.collection import info

    found = info(_project(arguments).store)
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
        return 0
    print(f"store    {found.root}")
    print(f"records  {found.records}")
    print(f"blobs    {found.blobs}, {size_text(found.size)}")
    if found.oldest_use is not None:
        print(f"oldest   used {(time.time() - found.oldest_use) / _DAY_S:.1f} days ago")
    return 0


def run_cache_gc(arguments: argparse.Namespace) -> int:
    """``npubake cache gc``: what this project's last builds made stays."""
    from npubake.pipeline.collection import gc

    project = _project(arguments)
    age = None if arguments.max_age is None else arguments.max_age * _DAY_S
    size = None if arguments.max_size is None else parse_size(arguments.max_size)
    found = gc(project.store, max_size=size, max_age=age, keep=_last_keys(project), dry_run=arguments.dry_run)
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
        return 0
    would = "would remove" if arguments.dry_run else "removed"
    print(f"{would} {len(found.keys)} records and {len(found.digests)} blobs: {size_text(found.freed)}")
    print(f"left: {size_text(found.left)}")
    return 0


def run_cache_fsck(arguments: argparse.Namespace) -> int:
    """``npubake cache fsck``: 1 where something was damaged (it is dropped, and made anew by the next build)."""
    from npubake.pipeline.collection import fsck

    found = fsck(_project(arguments).store)
    damaged = bool(found.damaged_blobs or found.dropped_records)
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
        return 1 if damaged else 0
    print(f"{found.blobs} blobs and {found.records} records read")
    for digest in found.damaged_blobs:
        print(f"damaged blob dropped: {digest}")
    for key in found.dropped_records:
        print(f"record dropped: {key}")
    return 1 if damaged else 0


def parse_size(text: str) -> int:
    """``500MB``, ``2GiB``, ``1048576`` -> bytes; K, M and G are powers of 1024. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(Fault(what=f"{text!r} is no size", where="--max-size", hint="Write 500MiB, 2GiB or bytes."))
    whole, _, part = match[1].partition(".")
    unit = _UNITS[match[2].upper()]
    return int(whole[:_DIGITS]) * unit + int(float(f"0.{part or 0}") * unit)


def _project(arguments: argparse.Namespace) -> Project:
    from npubake.pipeline.project import Project

    return Project(root.find(arguments.directory))


def _last_keys(project: Project) -> frozenset[str]:
    """Keys of the last build of every target of this project. Raises StoreError where a note of it is damaged."""
    keys: set[str] = set()
    for path in sorted((project.state / "last").glob("*.json")):
        try:
            keys |= {entry["key"] for entry in json.loads(path.read_bytes()).values()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            hint = "It says what the last build made, which is to be kept: delete it, then build that target again."
            raise StoreError(Fault(what=f"it cannot be read: {error}", where=str(path), hint=hint)) from error
    return frozenset(keys)
