"""Qualcomm toolchain, SDK road: a binary read again as it will be released, and run again. Bytes in, faults out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.pairing import require_files, require_metadata
from npubake.toolchains.qualcomm.qairt.emulating import Artifact, described, emulate
from npubake.toolchains.recorded import Recorded, difference


def require_artifact(artifact: Artifact, wrapper: bytes, metadata: Mapping[str, Any]) -> None:
    """Digests, pairing, and what the SDK's utility says of the binary now. metadata: as ``compile_qairt`` read it.

    Raises StageError with all faults of the first of these that fails.
    """
    require_files(artifact.contract, {"wrapper": wrapper, "binary": artifact.binary})
    found = described(artifact)
    require_metadata(artifact.contract, found.to_json())
    if found.parts[0].soc_model != metadata["parts"][0]["soc_model"]:
        what = "its metadata are not those that were read when it was compiled"
        raise StageError(Fault(where="binary", what=what, hint="the store was changed: build again"))


def require_repeated(artifact: Artifact, examples: Sequence[Recorded]) -> None:
    """Run recorded examples again in a new folder. Raises StageError, all outputs at once, where a byte differs."""
    faults = []
    repeated = emulate(artifact, [dict(example.inputs) for example in examples])
    for example, outputs in zip(examples, repeated, strict=True):
        for name, value in outputs.items():
            equal, gap, angle = difference(value, example.outputs[name])
            if not equal:
                what = f"{example.example}: qnn-net-run differs from the record by {gap:.6g} (cosine {angle:.6f})"
                faults.append(Fault(where=name, what=what, hint="is the same SDK there? Build again."))
    if faults:
        raise StageError(*faults)
