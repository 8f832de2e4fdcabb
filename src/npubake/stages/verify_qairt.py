"""stages: ``verify_qairt``, a binary of the SDK read again as it will be packaged, and a recorded example run again."""

from __future__ import annotations

import json

from npubake.pipeline.stage import Job
from npubake.stages.verify_htp import REPEATED, write_verified
from npubake.toolchains.qualcomm.qairt.emulating import Artifact
from npubake.toolchains.qualcomm.qairt.verification import require_artifact, require_repeated
from npubake.toolchains.recorded import read_recorded


def run(job: Job) -> None:
    """Write ``record`` and ``outputs``, in the form of ``verify_htp``; its errors."""
    contract, metadata = (json.loads(job.input(port).read_text(encoding="utf-8")) for port in ("contract", "metadata"))
    artifact = Artifact(binary=job.input("binary").read_bytes(), contract=contract, params=job.params)
    require_artifact(artifact, job.input("wrapper").read_bytes(), metadata)
    emulated = read_recorded(job.input("emulated").read_bytes(), "emulated")
    require_repeated(artifact, emulated[:REPEATED])
    write_verified(job, emulated)
