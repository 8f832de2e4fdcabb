"""stages: ``verify_htp``, the compiled artifact read again as it will be packaged, and a recorded example run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.toolchains.qualcomm.htp.emulation import Artifact, How
from npubake.toolchains.qualcomm.release import verification
from npubake.toolchains.recorded import Recorded, read_recorded, write_recorded

RECORDED = 4  # examples in the bundle: the detector's inputs and outputs are about 1 MB each
BOUNDARY = "QDQ model -> compiled artifact in the emulator"
REPEATED = 1  # of them, run again in a fresh process


def run(job: Job) -> None:
    """Write ``record`` and ``outputs``; StageError where a file is not what was compiled and measured, GateError where
    the artifact is not the QDQ model.
    """
    contract, metadata = (json.loads(job.input(port).read_text(encoding="utf-8")) for port in ("contract", "metadata"))
    wrapper, binary = (job.input(port).read_bytes() for port in ("wrapper", "binary"))
    artifact = Artifact(wrapper=wrapper, binary=binary, contract=contract)
    verification.require_artifact(artifact, metadata)
    emulated = read_recorded(job.input("emulated").read_bytes(), "emulated")
    executed = _part(job) or artifact
    verification.require_repeated(executed, emulated[:REPEATED], How(progress=job.progress))
    write_verified(job, emulated, "" if executed is artifact else f"compiled for {_name(executed)} alone, ")


def _part(job: Job) -> Artifact | None:
    """What the emulator ran in place of a binary for several SoCs, which it does not open."""
    path = job.optional("part_contract")
    if path is None:
        return None
    wrapper, binary = (job.input(port).read_bytes() for port in ("part_wrapper", "part_binary"))
    return Artifact(wrapper=wrapper, binary=binary, contract=json.loads(path.read_text(encoding="utf-8")))


def _name(artifact: Artifact) -> str:
    return str(artifact.contract["platform"]["platform"])


def write_verified(job: Job, emulated: Sequence[Recorded], of: str = "") -> None:
    """Judge the figures against the QDQ model; write ``record`` and ``outputs``. emulated: all that was measured; of:
    which part of the artifact that was, '' for all of it.
    """
    figures = json.loads(job.input("figures").read_text(encoding="utf-8"))
    wrapper, binary = (job.input(port).read_bytes() for port in ("wrapper", "binary"))
    compared = verification.comparisons(figures)
    verification.judge(compared)
    runs = write_recorded(job.outputs["outputs"], emulated[:RECORDED])
    record = {
        "version": 1,
        "provenance": [],
        "boundary": f"QDQ model -> compiled artifact, {of}in the emulator" if of else BOUNDARY,
        "exact": False,
        "tolerance": {"cosine": verification.AGREEMENT_COSINE},
        "comparisons": compared,
        "boxes": figures.get("boxes"),
        "agreement": figures["agreement"],
        "runs": runs,
        "repeated": min(REPEATED, len(emulated)),
        "wrapper_sha256": hashlib.sha256(wrapper).hexdigest(),
        "binary_sha256": hashlib.sha256(binary).hexdigest(),
        "recorded_sha256": hashlib.sha256(job.outputs["outputs"].read_bytes()).hexdigest(),
    }
    write_json(job, "record", record)
