"""stages: ``calibrate``, from statistics to quantisation parameters and the fake-quantised model. An adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from npubake.calibration.statistics import Statistics
from npubake.graph.model_file import load_model, save_model
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.assign import Subject, assign
from npubake.quant.declared_ranges import declared_ranges
from npubake.quant.loading import loaded_facts, read_scales
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import digest_of_graph
from npubake.quant.qdq import calibrated_model
from npubake.quant.record import record_json
from npubake.quant.request import Request, parse_request
from npubake.stages.json_files import write_json


def run(job: Job) -> None:
    """Write the calibrated model, the parameters and the record. Input ``scales``: parameters of an earlier build."""
    model = load_model(job.input("model"))
    subject = read_subject(model, job.input("graph"), job.input("statistics"))
    summary, request = subject.summary, read_request(job, subject.summary)
    matched = [entry.groups for entry in resolve_overrides(summary, request.overrides)]
    made = assign(subject, request, matched)
    calibrated = calibrated_model(model, summary, subject.facts, made.parameters)
    save_model(calibrated.model, job.outputs["model"])
    made.parameters.save(job.outputs["parameters"])
    everywhere = request.lane.everywhere
    record = record_json(made.record, made.parameters, summary, calibrated.provenance, everywhere=everywhere)
    if request.loaded is not None:
        record |= loaded_facts(request.loaded, made.parameters, record["warnings"])
    write_json(job, "record", record)


def read_subject(model: onnx.ModelProto, graph: Path, statistics: Path) -> Subject:
    """What is quantised: ``model``, its graph.json and its statistics."""
    return Subject(
        summary=GraphSummary.load(graph),
        graph_digest=digest_of_graph(graph),
        facts=model_facts(model),
        statistics=Statistics.load(statistics).tensors,
    )


def read_request(job: Job, summary: GraphSummary) -> Request:
    """What is asked of the quantiser, with the scales of an earlier build where they are loaded."""
    request = parse_request({**job.params, "input_ranges": declared_ranges(job.params, summary)})
    scales = job.optional("scales")
    if scales is None:
        return request
    return replace(request, loaded=read_scales(scales, job.params.get("missing", "refuse")))
