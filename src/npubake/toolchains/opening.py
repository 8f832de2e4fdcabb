"""Toolchains room: a built artifact's file is run or verified by the toolchain that made it. Paths in, answers out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from npubake.toolchains import canonical_zip
from npubake.toolchains.bundle_file import BundleReport
from npubake.toolchains.feeding import Run
from npubake.toolchains.qualcomm.htp.htp_files import BINARY


def verify(path: Path, digest: str) -> BundleReport:
    """Every byte of a bundle, then its recorded examples. digest: sha256 by the manifest, or ''. Raises StageError."""
    if _compiled(path):
        from npubake.toolchains.qualcomm.release import bundle

        return bundle.verify_bundle(path, threads=len(os.sched_getaffinity(0)), digest=digest)
    from npubake.toolchains.reference.bundle import verify_bundle

    return verify_bundle(path, digest=digest)


def run(path: Path, files: Sequence[tuple[str, Path]], example: int | None) -> Run:
    """One example through a bundle, or a package of toolchain reference; ``feeding.feed`` says how files are read.

    Raises UsageError for files that cannot be fed, StageError for a damaged artifact, ToolchainError where what runs it
    is not installed.
    """
    if _compiled(path):
        from npubake.toolchains.qualcomm.release import bundle, running

        entries = bundle.read_bundle(path.read_bytes(), path.name)
        return running.run_files(bundle.open_artifact(entries, path.name), files, example=example)
    from npubake.toolchains.reference.running import load_package, run_files

    return run_files(load_package(path), files, example=example)


def _compiled(path: Path) -> bool:
    """Whether the file is a bundle of toolchain qualcomm: it holds the binary. Raises StageError for a file that is no
    intact archive.
    """
    return BINARY in canonical_zip.read(path.read_bytes(), path.name)
