"""stages: ``package``, everything that is released in one canonical archive, and the deployable and its contract apart.

The two are handed on byte for byte: what lies in ``build/`` is what ``verify`` has accepted, like the bundle.
"""

from __future__ import annotations

from npubake.pipeline.stage import Job
from npubake.toolchains.reference import bundle


def run(job: Job) -> None:
    """Write ``bundle``, ``deployable`` and ``contract``."""
    ports = {
        bundle.PACKAGE: "deployable",
        bundle.CONTRACT: "contract",
        bundle.CALIBRATION: "archive",
        bundle.VERIFIED: "verified",
        bundle.OUTPUTS: "outputs",
    }
    entries = {name: job.input(port).read_bytes() for name, port in ports.items()}
    job.outputs["bundle"].write_bytes(bundle.write_bundle(entries))
    for name in (bundle.PACKAGE, bundle.CONTRACT):
        job.outputs[ports[name]].write_bytes(entries[name])
