"""Room ``stages``: ptq. The calibrated model enters; nonlinear operators leave as lookup tables. An adapter."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from npubake.errors import Fault, StageError
from npubake.fixedpoint.ptq import fix_nonlinear
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters


def run(job: Job) -> None:
    """Write the model and the record: tables with their error bounds, certificates, float nodes, provenance.

    Raises StageError where the parameters were made for another graph.
    """
    graph = job.input("graph")
    parameters = QuantizationParameters.load(job.input("parameters"))
    digest = hashlib.sha256(graph.read_bytes()).hexdigest()
    if parameters.graph_digest != digest:
        what = f"the parameters were made for graph {parameters.graph_digest[:12]}, this one is {digest[:12]}"
        raise StageError(Fault(what=what, where=job.input("parameters").name, hint="run calibrate on this graph"))
    fixed = fix_nonlinear(load_model(job.input("model")), GraphSummary.load(graph), parameters)
    save_model(fixed.model, job.outputs["model"])
    record = {
        "certificates": [asdict(entry) for entry in fixed.certificates],
        "float_nodes": [asdict(entry) for entry in fixed.float_nodes],
        "provenance": [asdict(entry) for entry in fixed.provenance],
        "tables": [asdict(entry) for entry in fixed.tables],
    }
    job.outputs["record"].write_text(json.dumps(record, sort_keys=True, indent=1) + "\n", encoding="utf-8")
