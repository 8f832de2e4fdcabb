"""stages: ``calibrate``, from statistics to quantisation parameters and the fake-quantised model. An adapter."""

from __future__ import annotations

import hashlib
import json

import onnx
from onnx import AttributeProto, helper, numpy_helper

from npubake.calibration.statistics import Statistics
from npubake.graph.model_file import load_model, save_model
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.assign import Subject, assign
from npubake.quant.operands import ModelFacts
from npubake.quant.qdq import calibrated_model
from npubake.quant.record import record_json
from npubake.quant.request import parse_request

_NUMERIC = (AttributeProto.INT, AttributeProto.FLOAT)


def run(job: Job) -> None:
    """Write the calibrated model, the parameters and the record."""
    request = parse_request(job.params)
    summary = GraphSummary.load(job.input("graph"))
    model = load_model(job.input("model"))
    subject = Subject(
        summary=summary,
        graph_digest=hashlib.sha256(job.input("graph").read_bytes()).hexdigest(),
        facts=model_facts(model),
        statistics=Statistics.load(job.input("statistics")).tensors,
    )
    matched = [entry.groups for entry in resolve_overrides(summary, request.overrides)]
    made = assign(subject, request, matched)
    calibrated = calibrated_model(model, summary, subject.facts, made.parameters)
    save_model(calibrated.model, job.outputs["model"])
    made.parameters.save(job.outputs["parameters"])
    record = record_json(made.record, made.parameters, summary, calibrated.provenance)
    job.outputs["record"].write_text(json.dumps(record, sort_keys=True, indent=1) + "\n", encoding="utf-8")


def model_facts(model: onnx.ModelProto) -> ModelFacts:
    """Constants and numeric attributes of a model as plain data."""
    return ModelFacts(
        initializers={tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer},
        attributes={
            node.name: {
                entry.name: helper.get_attribute_value(entry) for entry in node.attribute if entry.type in _NUMERIC
            }
            for node in model.graph.node
        },
    )
