"""stages: ``measure_inputs``, the validation set decoded and preprocessed by the same block as the calibration set."""

from __future__ import annotations

import json

from npubake.calibration.collection import SourceFiles, collect
from npubake.calibration.inputs import Request
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job


def run(job: Job) -> None:
    """Write ``samples``; RecipeError with every fault of the set."""
    listing = json.loads(job.input("listing").read_text(encoding="utf-8"))
    files = SourceFiles(listing, job.inputs.get("files", ()))
    graph = GraphSummary.load(job.input("graph"))
    collect(files, graph, Request.from_params(job.params), job.outputs["samples"], job.progress)
