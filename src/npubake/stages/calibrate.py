"""stages: ``calibrate``, from statistics to quantisation parameters and the fake-quantised model. An adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, helper, numpy_helper

from npubake.calibration.statistics import Statistics
from npubake.graph.model_file import load_model, save_model
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.assign import Assignment, Subject, assign
from npubake.quant.loading import LoadedScales, moved_scales, moved_warnings, read_scales
from npubake.quant.operands import ModelFacts
from npubake.quant.parameters import digest_of_graph
from npubake.quant.qdq import calibrated_model
from npubake.quant.record import record_json
from npubake.quant.request import Request, parse_request

_NUMERIC = (AttributeProto.INT, AttributeProto.FLOAT)


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
    record = record_json(made.record, made.parameters, summary, calibrated.provenance)
    if request.loaded is not None:
        record |= loaded_facts(request.loaded, made, record["warnings"])
    job.outputs["record"].write_text(json.dumps(record, sort_keys=True, indent=1) + "\n", encoding="utf-8")


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
    request = parse_request({**job.params, "input_ranges": input_ranges(job.params, summary)})
    scales = job.optional("scales")
    if scales is None:
        return request
    return replace(request, loaded=read_scales(scales, job.params.get("missing", "refuse")))


def loaded_facts(loaded: LoadedScales, made: Assignment, warnings: list[str]) -> dict[str, Any]:
    """What became of loaded scales: how many are used, and those that had to move, which are warnings too."""
    moved = moved_scales(made.parameters.tensors, made.parameters.weights, loaded)
    used = len(loaded.tensors.keys() & made.parameters.tensors.keys())
    facts = {"tensors": used, "moved": [asdict(entry) for entry in moved]}
    return {"warnings": [*warnings, *moved_warnings(moved)], "loaded_scales": facts}


def input_ranges(params: Mapping[str, Any], summary: GraphSummary) -> dict[str, list[float]]:
    """The declared range of each graph input. ``image_inputs`` ``{range, channels, layout, layouts: {name: layout}}``
    stands for every input that takes a picture of so many channels; ``input_ranges`` states them by name. Below both
    stand the ranges that the source model declared itself, of any tensor.
    """
    ranges = dict(params.get("input_ranges", {}))
    images = params.get("image_inputs", {})
    for name in summary.inputs if images else ():
        shape = summary.tensors[name].shape
        layout = images.get("layouts", {}).get(name, images["layout"])
        if len(shape) == 4 and shape[1 if layout == "NCHW" else 3] == images["channels"]:
            ranges.setdefault(name, list(images["range"]))
    return {name: list(ends) for name, ends in summary.declared.items()} | ranges


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
