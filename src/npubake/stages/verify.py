"""stages: ``verify``, the deployable executed on real samples and compared with the quantised model."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

from npubake.calibration.samples import SampleSet
from npubake.graph.model_file import load_model
from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.toolchains.reference.package_file import Package
from npubake.toolchains.reference.verification import FLOAT_COSINE, judge, record_runs

DEFAULT_COUNT = 4  # examples recorded in the bundle: the detector's inputs and outputs are about 1 MB each


def run(job: Job) -> None:
    """Write ``record`` and ``outputs``; GateError where the deployable is not the quantised model.

    The executor runs on one thread whatever the job has: float nodes would repeat their bytes no other way.
    """
    deployable = job.input("deployable").read_bytes()
    package = Package.from_bytes(deployable, job.input("deployable").name)
    count = int(job.params.get("count", DEFAULT_COUNT))
    with SampleSet.open(job.input("samples")) as samples:
        model = load_model(job.input("model"))
        runs, comparisons = record_runs(package, model, samples, count, job.outputs["outputs"])
    exact = bool(package.contract["exact"])
    judge(comparisons)
    record: dict[str, Any] = {
        "version": 1,
        "provenance": [],
        "boundary": "quantized -> deployable",
        "exact": exact,
        "tolerance": None if exact else {"cosine": FLOAT_COSINE},
        "comparisons": [asdict(entry) for entry in comparisons],
        "runs": runs,
        "deployable_sha256": hashlib.sha256(deployable).hexdigest(),
        "recorded_sha256": hashlib.sha256(job.outputs["outputs"].read_bytes()).hexdigest(),
    }
    write_json(job, "record", record)
