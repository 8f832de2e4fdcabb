"""Qualcomm toolchain, SDK road: a binary read again as it will be released, and run again. Bytes in, faults out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npubake.errors import Fault, StageError, ToolchainError
from npubake.toolchains.board_edges import Arrays
from npubake.toolchains.qualcomm.htp.emulation import Artifact as Released
from npubake.toolchains.qualcomm.htp.metadata import Metadata
from npubake.toolchains.qualcomm.qairt.emulating import Artifact, described, emulate
from npubake.toolchains.qualcomm.qairt.sdk import find_sdk
from npubake.toolchains.qualcomm.release.pairing import require_files, require_metadata
from npubake.toolchains.qualcomm.release.verification import refuse_differences
from npubake.toolchains.recorded import Recorded


def require_artifact(artifact: Artifact, wrapper: bytes, metadata: Mapping[str, Any] | None) -> None:
    """Digests, pairing, and what the SDK's utility says of the binary now. metadata: as ``compile_qairt`` read it.

    Raises StageError with all faults of the first of these that fails.
    """
    require_files(artifact.contract, {"wrapper": wrapper, "binary": artifact.binary})
    found = described(artifact)
    require_metadata(artifact.contract, found.to_json())
    if metadata is not None and found.parts != Metadata.from_json(metadata).parts:
        what = "its metadata are not those that were read when it was compiled"
        raise StageError(Fault(where="binary", what=what, hint="the store was changed: build again"))


def require_repeated(artifact: Artifact, examples: Sequence[Recorded]) -> None:
    """Run recorded examples again in a new folder. Raises StageError, all outputs at once, where a byte differs."""
    repeated = emulate(artifact, [dict(example.inputs) for example in examples])
    refuse_differences(examples, repeated, ran="qnn-net-run", hint="is the same SDK there? Build again.")


def run_recorded(released: Released, recorded: Sequence[Recorded]) -> str:
    """Read a released binary back and run its recorded examples, where the SDK that made it is installed; else why not.

    Raises StageError where it is not what its contract says, or an output is not the recorded one.
    """
    try:
        artifact = _of_contract(released)
    except ToolchainError as error:
        return "qnn-net-run was not run: " + "; ".join(fault.what for fault in error.faults)
    require_artifact(artifact, released.wrapper, None)
    require_repeated(artifact, recorded)
    return ""


def emulated_by_sdk(released: Released, feeds: Sequence[Arrays]) -> list[Arrays]:
    """Outputs of a released binary by qnn-net-run. Raises ToolchainError where the SDK that made it is not there."""
    return emulate(_of_contract(released), feeds)


def _of_contract(released: Released) -> Artifact:
    """The artifact with what its contract says of platform and SDK. Raises ToolchainError."""
    contract = released.contract
    platform, build = contract["platform"], contract["build"]
    sdk = find_sdk(build["converter"])
    if sdk.version != build["qairt_sdk"]:
        what = f"the binary was made by QAIRT SDK {build['qairt_sdk']}, QAIRT_SDK_ROOT holds {sdk.version}"
        raise ToolchainError(Fault(what=what, where="QAIRT_SDK_ROOT", hint="name the SDK that made it"))
    facts = {
        "name": platform["platform"],
        "soc_model": platform["soc_model"],
        "march": platform["march"],
        "vtcm_bytes": contract["htp"]["vtcm_bytes"],
    }
    params = {"platform": facts, "qairt": {"version": sdk.version, "converter": build["converter"]}}
    return Artifact(binary=released.binary, contract=contract, params=params)
