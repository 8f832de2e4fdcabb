"""stages: ``measure``, figures of a boundary: two models on the same examples. It knows no threshold."""

from __future__ import annotations

from npubake.calibration.samples import SampleSet
from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
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
    write_json(job, "figures", {**facts, **comparison.to_json()})
