"""stages: ``package``, everything that is released in one canonical archive."""

from __future__ import annotations

from npubake.pipeline.stage import Job
from npubake.toolchains.reference import bundle


def run(job: Job) -> None:
    """Write ``bundle``."""
    ports = {
        bundle.PACKAGE: "deployable",
        bundle.CONTRACT: "contract",
        bundle.CALIBRATION: "archive",
        bundle.VERIFIED: "verified",
        bundle.OUTPUTS: "outputs",
    }
    entries = {name: job.input(port).read_bytes() for name, port in ports.items()}
    job.outputs["bundle"].write_bytes(bundle.write_bundle(entries))
