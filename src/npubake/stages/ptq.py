"""stages: ``ptq``, the calibrated model enters; nonlinear operators leave as lookup tables. An adapter."""

from __future__ import annotations

from dataclasses import asdict

from npubake.fixedpoint.ptq import fix_nonlinear
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages.json_files import write_json


def run(job: Job) -> None:
    """Write the model and the record: tables with their error bounds, certificates, float nodes, provenance.

    Raises StageError where the parameters were made for another graph.
    """
    graph = job.input("graph")
    parameters = QuantizationParameters.load(job.input("parameters"))
    parameters.require_graph(graph)
    fixed = fix_nonlinear(load_model(job.input("model")), GraphSummary.load(graph), parameters)
    save_model(fixed.model, job.outputs["model"])
    record = {
        "certificates": [asdict(entry) for entry in fixed.certificates],
        "float_nodes": [asdict(entry) for entry in fixed.float_nodes],
        "provenance": [asdict(entry) for entry in fixed.provenance],
        "tables": [asdict(entry) for entry in fixed.tables],
    }
    write_json(job, "record", record)
