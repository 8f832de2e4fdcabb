"""stages: ``moments``, means and X.X' of what the named weighted groups read in the float model. An adapter."""

from __future__ import annotations

from npubake.calibration.samples import SampleSet
from npubake.graph.model_file import load_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.tuning.matrix_form import matrix_forms
from npubake.tuning.moments import POSITIONS, observe_moments, save_moments


def run(job: Job) -> None:
    """Write ``moments``; StageError naming each group without constant weights, or the example that is not finite."""
    graph = GraphSummary.load(job.input("graph"))
    forms = matrix_forms(load_model(job.input("model")), graph, job.params["groups"])
    with SampleSet.open(job.input("samples")) as samples:
        made = observe_moments(
            job.input("model"),
            samples,
            list(forms.values()),
            job.threads,
            job.params.get("positions", POSITIONS),
            job.progress,
        )
    save_moments(job.outputs["moments"], made)
