"""Qualcomm toolchain: the released bundle, a canonical zip. Bytes in, bytes out; ``verify_bundle`` checks and runs one.

Entries: ``model_ctx.onnx`` and ``model_ctx_qnn.bin`` (the pair that a device loads), ``contract.json``,
``calibration.zip`` (the calibration archive), ``verify.json`` (what ``verify_htp`` found), ``recorded.zip`` (inputs and
outputs of the emulator), ``SHA256SUMS``. The vendor's loader notices no flipped byte; the sums do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npubake.errors import StageError
from npubake.toolchains import bundle_file
from npubake.toolchains.bundle_file import CALIBRATION, BundleReport
from npubake.toolchains.qualcomm.htp.context_archive import is_archive
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER
from npubake.toolchains.qualcomm.probe import NAME, probe
from npubake.toolchains.qualcomm.qairt.sdk import made_by_sdk
from npubake.toolchains.qualcomm.release import forms

if TYPE_CHECKING:  # writing a bundle needs neither numpy nor onnxruntime
    from npubake.toolchains.qualcomm.htp.emulation import Artifact
    from npubake.toolchains.recorded import Recorded

CONTRACT = "contract.json"
VERIFIED = "verify.json"
OUTPUTS = "recorded.zip"
SEVERAL = (
    "the emulator was not run: it opens no binary for several SoCs; when this one was built, the same model was "
    "compiled for each SoC alone, and those were run"
)
ENTRIES = (WRAPPER, BINARY, CONTRACT, CALIBRATION, VERIFIED, OUTPUTS)


def write_bundle(entries: Mapping[str, bytes]) -> bytes:
    """The bundle of exactly ``ENTRIES``."""
    return bundle_file.write(entries, ENTRIES)


def read_bundle(data: bytes, where: str) -> dict[str, bytes]:
    """Entries of a bundle without its sums. Raises StageError, all faults at once, where anything was changed."""
    return bundle_file.read(data, where, ENTRIES)


def open_artifact(entries: Mapping[str, bytes], where: str) -> Artifact:
    """The artifact of a bundle's entries: files that are the contract's, and fit each other. Raises StageError."""
    from npubake.toolchains import pictures
    from npubake.toolchains.qualcomm.htp.emulation import Artifact
    from npubake.toolchains.qualcomm.release.pairing import require_files

    contract = bundle_file.parsed(entries[CONTRACT], f"{where}: {CONTRACT}", forms.CONTRACT)
    require_files(contract, {"wrapper": entries[WRAPPER], "binary": entries[BINARY]}, f"{where}: ")
    pictures.require_fitting(contract, f"{where}: {CONTRACT}")
    return Artifact(wrapper=entries[WRAPPER], binary=entries[BINARY], contract=contract)


def verify_bundle(path: Path, *, threads: int = 1, digest: str = "") -> BundleReport:
    """Check every byte; then, where the SDK is installed, read the binary's metadata again, run the recorded inputs in
    the emulator and compare with the recorded outputs, byte by byte. threads: processes side by side.

    digest: sha256 that the file must have (the manifest's), where one is at hand. Raises StageError with what is wrong.
    """
    from npubake.toolchains.recorded import read_recorded

    data = path.read_bytes()
    bundle_file.require_digest(data, digest, path.name)
    entries = read_bundle(data, path.name)
    artifact = open_artifact(entries, path.name)
    verified = bundle_file.parsed(entries[VERIFIED], f"{path.name}: {VERIFIED}", forms.VERIFIED)
    stated = {
        WRAPPER: verified["wrapper_sha256"],
        BINARY: verified["binary_sha256"],
        OUTPUTS: verified["recorded_sha256"],
    }
    faults = bundle_file.restated(entries, stated, path.name, VERIFIED)
    if faults:
        raise StageError(*faults)
    bundle_file.require_one_preset(artifact.contract, entries, path.name)
    recorded = read_recorded(entries[OUTPUTS], f"{path.name}: {OUTPUTS}", verified["runs"])
    unexecuted = _run_recorded(artifact, recorded, path.name, threads)
    return BundleReport(
        toolchain=NAME,
        platform=artifact.contract["platform"]["platform"],
        entries=bundle_file.digests(entries),
        runs=0 if unexecuted else len(verified["runs"]),
        exact=not unexecuted,
        max_difference=0.0,
        unexecuted=unexecuted,
    )


def _run_recorded(artifact: Artifact, recorded: Sequence[Recorded], where: str, threads: int) -> str:
    """Why the emulator was not run, '' where it was: the SDK's for what the SDK made, else the package's.

    Raises StageError where the binary is not what the contract says, or an output is not the recorded one.
    """
    if made_by_sdk(artifact.contract):
        from npubake.toolchains.qualcomm.qairt.verification import run_recorded

        return run_recorded(artifact, recorded)
    found = probe()
    if not found.usable:
        return f"the emulator was not run: {found.why} ({found.hint})"
    from npubake.toolchains.qualcomm.htp.emulation import How
    from npubake.toolchains.qualcomm.release.verification import require_artifact, require_repeated

    require_artifact(artifact, None, f"{where}: ")
    if is_archive(artifact.binary):
        return SEVERAL
    require_repeated(artifact, recorded, How(processes=threads), f"{where}: ")
    return ""
