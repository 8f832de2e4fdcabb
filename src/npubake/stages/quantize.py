"""stages: ``quantize``, the integer model with its runtime inputs and its edges. An adapter."""

from __future__ import annotations

import json

from npubake.fixedpoint.quantising import EdgeRequest, quantise
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters


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
    text = json.dumps(made.record, sort_keys=True, indent=1, allow_nan=False)
    job.outputs["record"].write_text(text + "\n", encoding="utf-8")
