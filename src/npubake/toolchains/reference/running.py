"""Reference toolchain: runs a built artifact on files. Paths in, arrays out; what ``npubake run`` calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npubake.toolchains import canonical_zip
from npubake.toolchains.feeding import Run, feed
from npubake.toolchains.reference import bundle
from npubake.toolchains.reference.executor import Executor, run_values
from npubake.toolchains.reference.package_file import Package


def load_package(path: Path) -> Package:
    """The package of a package or a bundle file. Raises StageError where it is damaged."""
    data = path.read_bytes()
    entries = canonical_zip.read(data, path.name)
    if bundle.PACKAGE not in entries:
        return Package.from_bytes(data, path.name)
    entries = bundle.read_bundle(data, path.name)
    return Package.from_bytes(entries[bundle.PACKAGE], f"{path.name}: {bundle.PACKAGE}")


def run_files(
    package: Package, files: Sequence[tuple[str, Path]], *, example: int | None = None, threads: int = 1
) -> Run:
    """Run one example; ``feeding.feed`` says how files are read. Raises UsageError for files that cannot be fed."""
    executor = Executor(package, threads=threads)
    fed = feed(package.contract, files, example)
    return Run(outputs=run_values(executor, fed.values), fed=fed)
