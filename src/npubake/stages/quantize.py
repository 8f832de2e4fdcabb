"""stages: ``quantize``, the integer model with its runtime inputs and its edges. An adapter."""

from __future__ import annotations

from npubake.fixedpoint.quantising import EdgeRequest, quantise
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages.json_files import write_json


def run(job: Job) -> None:
    """Write ``model``, ``removed`` and ``record``. StageError where the parameters belong to another graph."""
    parameters = QuantizationParameters.load(job.input("parameters"))
    parameters.require_graph(job.input("graph"))
    made = quantise(
        load_model(job.input("model")),
        GraphSummary.load(job.input("graph")),
        parameters,
        EdgeRequest.from_params(job.params),
    )
    save_model(made.model, job.outputs["model"])
    save_model(made.removed, job.outputs["removed"])
    write_json(job, "record", made.record)
