"""stages: ``measure``, figures of a boundary: two models on the same examples. It knows no threshold."""

from __future__ import annotations

import json

from npubake.calibration.samples import SampleSet
from npubake.pipeline.stage import Job
from npubake.verify.comparison import Run, TracedModel, compare_models


def run(job: Job) -> None:
    """Write ``figures``: of every output, and of every pair of tensors, worst first.

    The candidate's record is graph.json (port ``graph``) where it is the optimised float model.
    """
    reference = TracedModel.load(job.input("reference"), job.optional("reference_record"))
    candidate = TracedModel.load(job.input("candidate"), job.optional("candidate_record") or job.optional("graph"))
    with SampleSet.open(job.input("samples")) as samples:
        how = Run(limit=job.params.get("limit"), threads=job.threads, progress=job.progress)
        comparison = compare_models(reference, candidate, samples, how)
        facts = {"version": 1, "kind": "tensors", "boundary": job.params["boundary"], "random": samples.random}
    text = json.dumps({**facts, **comparison.to_json()}, sort_keys=True, indent=1, allow_nan=False)
    job.outputs["figures"].write_text(text + "\n", encoding="utf-8")
