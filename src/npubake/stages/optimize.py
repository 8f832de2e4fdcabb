"""stages: ``optimize``, the original float model enters, the optimised one and graph.json leave. No parameters."""

from __future__ import annotations

from npubake.graph.model_file import load_model, save_model
from npubake.graph.optimizing import optimize_model
from npubake.pipeline.stage import Job


def run(job: Job) -> None:
    """Raises StageError where a tensor has no static size."""
    optimized = optimize_model(load_model(job.input("model")))
    save_model(optimized.model, job.outputs["model"])
    optimized.summary.save(job.outputs["graph"])
