"""stages: ``package_htp``, everything that is released in one canonical archive, and the artifact and its contract
apart.

They are handed on byte for byte: what lies in ``build/`` is what ``verify_htp`` has accepted, like the bundle.
"""

from __future__ import annotations

from npubake.pipeline.stage import Job
from npubake.toolchains.bundle_file import CALIBRATION
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER
from npubake.toolchains.qualcomm.release import bundle

_PORTS = {
    WRAPPER: "wrapper",
    BINARY: "binary",
    bundle.CONTRACT: "contract",
    CALIBRATION: "archive",
    bundle.VERIFIED: "verified",
    bundle.OUTPUTS: "outputs",
}


def run(job: Job) -> None:
    """Write ``bundle``, ``wrapper``, ``binary`` and ``contract``."""
    entries = {name: job.input(port).read_bytes() for name, port in _PORTS.items()}
    job.outputs["bundle"].write_bytes(bundle.write_bundle(entries))
    for name in (WRAPPER, BINARY, bundle.CONTRACT):
        job.outputs[_PORTS[name]].write_bytes(entries[name])
