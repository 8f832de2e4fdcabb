"""stages: ``compile``, the quantised model (with its edge nodes removed) into the platform's deployable package."""

from __future__ import annotations

import json

from npubake.pipeline.stage import Job
from npubake.toolchains.reference.compiling import compile_package
from npubake.toolchains.reference.package_file import contract_bytes
from npubake.toolchains.reference.platform_facts import PlatformFacts


def run(job: Job) -> None:
    """Write ``deployable`` and ``contract``. The port ``model`` is the same model with its edges still on; it makes the
    key depend on both, and is what ``verify`` compares with.
    """
    record = json.loads(job.input("record").read_text(encoding="utf-8"))
    facts = PlatformFacts.from_params(job.params)
    package = compile_package(job.input("removed").read_bytes(), record, facts, job.outputs["deployable"])
    job.outputs["contract"].write_bytes(contract_bytes(package.contract))
