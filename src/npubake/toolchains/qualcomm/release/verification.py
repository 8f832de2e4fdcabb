"""Qualcomm toolchain: reads a compiled artifact again as it will be released, and runs it again. Bytes in, facts out.

The emulator repeats itself to the bit: outputs of a fresh process are those that were measured, or the artifact, the
SDK or this machine changed in between. Against the QDQ model it may differ: the HTP's kernels round in their own way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npubake.errors import Fault, GateError, StageError
from npubake.toolchains.board_edges import Arrays
from npubake.toolchains.qualcomm.htp.emulation import Artifact, How, emulate
from npubake.toolchains.qualcomm.htp.metadata import Metadata, read_metadata
from npubake.toolchains.qualcomm.release.pairing import require_files, require_metadata
from npubake.toolchains.recorded import Recorded, difference

# A wrong layout, input or colour order leaves 0.9 and less of the cosine on real pictures, rounding 0.99 and more; the
# figures against the float model are judged by the gate ``compiled``.
AGREEMENT_COSINE = 0.95


def require_artifact(artifact: Artifact, metadata: Mapping[str, Any] | None, where: str = "") -> None:
    """Digests, pairing, and the binary's own metadata read again. metadata: as ``compile`` read it, where known.

    Raises StageError with all faults of the first of these that fails.
    """
    files = {"wrapper": artifact.wrapper, "binary": artifact.binary}
    require_files(artifact.contract, files, where)
    found = read_metadata(artifact.binary)
    require_metadata(artifact.contract, found.to_json(), where)
    if metadata is not None and found.parts != Metadata.from_json(metadata).parts:
        what = "its metadata are not those that were read when it was compiled"
        raise StageError(Fault(where=f"{where}binary", what=what, hint="the store was changed: build again"))


def require_repeated(artifact: Artifact, examples: Sequence[Recorded], how: How, where: str = "") -> None:
    """Run recorded examples again in fresh processes. Raises StageError, all outputs at once, where a byte differs."""
    repeated = emulate(artifact, [dict(example.inputs) for example in examples], how)
    hint = (
        f"recorded with QNN {artifact.contract['build']['qnn']}: is another SDK installed here? Ask `npubake doctor`."
    )
    refuse_differences(examples, repeated, ran="the emulator", hint=hint, where=where)


def refuse_differences(
    examples: Sequence[Recorded], repeated: Sequence[Arrays], *, ran: str, hint: str, where: str = ""
) -> None:
    """Raises StageError, all examples and outputs at once, where what ran again is not the record, to the bit.

    repeated: outputs of each example, by name; ran: what ran them, in words; hint: why they may differ.
    """
    faults = []
    for example, outputs in zip(examples, repeated, strict=True):
        if set(outputs) != set(example.outputs):
            what = f"{example.example}: outputs {sorted(outputs)}, recorded are {sorted(example.outputs)}"
            faults.append(Fault(where=where or "recorded", what=what, hint=hint))
            continue
        for name, value in outputs.items():
            equal, gap, angle = difference(value, example.outputs[name])
            if not equal:
                what = f"{example.example}: {ran} differs from the record by {gap:.6g} (cosine {angle:.6f})"
                faults.append(Fault(where=f"{where}{name}", what=what, hint=hint))
    if faults:
        raise StageError(*faults)


def comparisons(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Artifact against QDQ model, output by output, as the manifest has them. figures: of ``emulate``."""
    return [
        {
            "output": name,
            "bitwise": False,
            "tolerance": AGREEMENT_COSINE,
            "equal": found["max_abs"] == 0.0,
            "max_difference": found["max_abs"],
            "min_cosine": found["min_cosine"],
        }
        for name, found in figures["agreement"]["outputs"].items()
    ]


def judge(found: Sequence[Mapping[str, Any]]) -> None:
    """Raises GateError, all outputs at once, where the artifact is not the QDQ model."""
    faults = [
        Fault(
            where=f"QDQ model -> compiled artifact: {entry['output']}",
            what=f"cosine {entry['min_cosine']}, wanted >= {entry['tolerance']}",
            hint="suspected stage: compile; look first at layout and order of the inputs, then at the operator trace",
        )
        for entry in found
        if entry["min_cosine"] is None or entry["min_cosine"] < entry["tolerance"]
    ]
    if faults:
        raise GateError(*faults)
