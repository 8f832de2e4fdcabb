"""Reference toolchain: the released bundle, a canonical zip. Bytes in, bytes out; ``verify_bundle`` checks and runs
one.

Entries: ``model.npub`` (the package), ``contract.json`` (the same contract, readable by itself), ``calibration.zip``
(the calibration archive), ``verify.json`` (what ``verify`` found), ``recorded.zip`` (its inputs and outputs),
``SHA256SUMS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npubake.errors import Fault, StageError
from npubake.toolchains import bundle_file
from npubake.toolchains.bundle_file import CALIBRATION, BundleReport, preprocessing
from npubake.toolchains.reference import forms

if TYPE_CHECKING:  # writing a bundle needs neither numpy nor onnxruntime
    from npubake.toolchains.recorded import Recorded
    from npubake.toolchains.reference.package_file import Package

PACKAGE = "model.npub"
CONTRACT = "contract.json"
VERIFIED = "verify.json"
OUTPUTS = "recorded.zip"
ENTRIES = (PACKAGE, CONTRACT, CALIBRATION, VERIFIED, OUTPUTS)
__all__ = ("CALIBRATION", "BundleReport", "preprocessing", "read_bundle", "verify_bundle", "write_bundle")


def write_bundle(entries: Mapping[str, bytes]) -> bytes:
    """The bundle of exactly ``ENTRIES``."""
    return bundle_file.write(entries, ENTRIES)


def read_bundle(data: bytes, where: str) -> dict[str, bytes]:
    """Entries of a bundle without its sums. Raises StageError, all faults at once, where anything was changed."""
    return bundle_file.read(data, where, ENTRIES)


def verify_bundle(path: Path, *, threads: int = 1, digest: str = "") -> BundleReport:
    """Check every byte, then run the package on the recorded inputs and compare with the recorded outputs.

    digest: sha256 that the file must have (the manifest's), where one is at hand. Raises StageError with what is wrong.
    """
    from npubake.toolchains.recorded import read_recorded
    from npubake.toolchains.reference.package_file import Package, contract_bytes

    data = path.read_bytes()
    bundle_file.require_digest(data, digest, path.name)
    entries = read_bundle(data, path.name)
    package = Package.from_bytes(entries[PACKAGE], f"{path.name}: {PACKAGE}")
    verified = bundle_file.parsed(entries[VERIFIED], f"{path.name}: {VERIFIED}", forms.VERIFIED)
    faults = []
    if entries[CONTRACT] != contract_bytes(package.contract):
        faults.append(Fault(where=f"{path.name}: {CONTRACT}", what="it is not the package's own contract"))
    stated = {PACKAGE: verified["deployable_sha256"], OUTPUTS: verified["recorded_sha256"]}
    faults += bundle_file.restated(entries, stated, path.name, VERIFIED)
    if faults:
        raise StageError(*faults)
    bundle_file.require_one_preset(package.contract, entries, path.name)
    recorded = read_recorded(entries[OUTPUTS], f"{path.name}: {OUTPUTS}", verified["runs"])
    worst = _run_recorded(package, recorded, path.name, threads)
    return BundleReport(
        toolchain="reference",
        platform=package.contract["platform"]["platform"],
        entries=bundle_file.digests(entries),
        runs=len(verified["runs"]),
        exact=bool(package.contract["exact"]),
        max_difference=worst,
    )


def _run_recorded(package: Package, recorded: Sequence[Recorded], where: str, threads: int) -> float:
    """Run every recorded example; returns an output's largest difference. Raises StageError with all that differ."""
    from npubake.toolchains.recorded import difference, require_output
    from npubake.toolchains.reference.executor import Executor
    from npubake.toolchains.reference.verification import FLOAT_COSINE

    executor = Executor(package, threads=threads)
    worst, faults = 0.0, []
    for example in recorded:
        for name, value in executor.run(example.inputs).items():
            equal, gap, angle = difference(value, require_output(example, name, where))
            worst = max(worst, gap)
            if not equal and (package.contract["exact"] or angle < FLOAT_COSINE):
                what = f"{example.example}: output differs from the recorded one by {gap:.6g} (cosine {angle:.6f})"
                hint = "this machine does not compute the integer model exactly: report it, with `npubake doctor`"
                faults.append(Fault(where=f"{where}: {name}", what=what, hint=hint))
    if faults:
        raise StageError(*faults)
    return worst
