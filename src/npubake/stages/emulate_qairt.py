"""stages: ``emulate_qairt``, a binary of the SDK by its qnn-net-run beside the float and the QDQ model."""

from __future__ import annotations

import json

from npubake.pipeline.stage import Job
from npubake.stages.emulate import measure_artifact
from npubake.toolchains.qualcomm.qairt.emulating import Artifact, emulate


def run(job: Job) -> None:
    """Write ``figures`` and ``outputs``, in the form of ``emulate``."""
    contract = json.loads(job.input("contract").read_text(encoding="utf-8"))
    artifact = Artifact(binary=job.input("binary").read_bytes(), contract=contract, params=job.params)
    measure_artifact(job, contract, lambda feeds: emulate(artifact, feeds))
