"""stages: ``observe``, one pass over the calibration set; knows no method, lane or override."""

from __future__ import annotations

from npubake.calibration.observing import observe
from npubake.calibration.samples import SampleSet
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job


def run(job: Job) -> None:
    """Write ``statistics``; StageError naming example and tensor where a value is not finite."""
    graph = GraphSummary.load(job.input("graph"))
    with SampleSet.open(job.input("samples")) as samples:
        statistics = observe(job.input("model"), graph, samples, job.threads, job.progress)
    statistics.save(job.outputs["statistics"])
