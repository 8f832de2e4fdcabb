"""stages: ``tune``, judged steps that bring the quantised model nearer to the float one. An adapter.

Parameters: all of ``calibrate``; ``tuning: {level, judge, held_out, max_int16}``; the steps asked for:
``search_weight_scale``, ``hessian``, ``bias_correction``, ``mod`` (a block, or False where forbidden), and
``equivalent_transformation: true`` where the recipe asks for the transformed graph.
Outputs: ``float``, the float model that the integers are exact for (weights are code * scale), with its ``graph``;
``parameters``; ``model``, fake-quantised; ``record``: that of ``calibrate``, and ``tuning``: what was tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from npubake.calibration.samples import SampleSet
from npubake.graph.model_file import load_model, save_model
from npubake.graph.resolve import resolve_overrides
from npubake.pipeline.stage import Job
from npubake.quant.loading import loaded_facts
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import QuantizationParameters
from npubake.quant.qdq import calibrated_model
from npubake.quant.record import record_json
from npubake.quant.resolved import layers_to_learn
from npubake.stages.calibrate import read_request, read_subject
from npubake.stages.json_files import write_json
from npubake.tuning.candidate import Start
from npubake.tuning.settings import TuneSettings
from npubake.tuning.steps import Tuned, tune


def run(job: Job) -> None:
    """Write all outputs. StageError where the parameters were made for another graph."""
    given = QuantizationParameters.load(job.input("parameters"))
    given.require_graph(job.input("graph"))
    files = [(job.input("model"), job.input("graph"), job.input("statistics"))]
    starts = [replace(_start("optimised", job, *files[0]), given=given)]
    transformed = job.optional("transformed_model")
    if transformed is not None and transformed.read_bytes() != job.input("model").read_bytes():
        files.append((transformed, job.input("transformed_graph"), job.input("transformed_statistics")))
        starts.append(_start("transformed", job, *files[1]))
    first = starts[0]
    groups = [group.name for group in first.subject.summary.groups]
    taught = layers_to_learn(first.subject.summary, job.params.get("mod") or {})
    settings = TuneSettings.from_params(job.params, groups, first.request.overrides, first.matched, taught)
    if first.request.loaded is not None:
        settings = replace(settings, max_int16=0, limited=True)  # loaded scales leave no bits to choose
    with SampleSet.open(job.input("samples")) as samples:
        tuned = tune(starts, samples, settings, job.threads, job.progress)
    graph = files[[start.name for start in starts].index(tuned.candidate.start.name)][1]
    job.outputs["graph"].write_bytes(graph.read_bytes())
    _write(job, tuned, list(_idle(job, settings, tuned, transformed=len(starts) > 1)))


def _idle(job: Job, settings: TuneSettings, tuned: Tuned, *, transformed: bool) -> Iterator[str]:
    """What was asked for and came to nothing, as warnings."""
    if settings.transformed and job.optional("transformed_model") is not None and not transformed:
        yield "equivalent_transformation: nothing was found to gain by it, the graph is as it was"
    if tuned.record["unjudged"] and settings.judge and settings.level != "none":
        why = tuned.record["unjudged"]
        yield f"tuning: no step of level {settings.level} was tried, since nothing could be judged: {why}"


def _start(name: str, job: Job, model: Path, graph: Path, statistics: Path) -> Start:
    loaded = load_model(model)
    subject = read_subject(loaded, graph, statistics)
    request = read_request(job, subject.summary)
    return Start(
        name=name,
        model=loaded,
        subject=subject,
        request=request,
        matched=[entry.groups for entry in resolve_overrides(subject.summary, request.overrides)],
    )


def _write(job: Job, tuned: Tuned, idle: list[str]) -> None:
    candidate, summary = tuned.candidate, tuned.candidate.start.subject.summary
    real = candidate.float_model()
    calibrated = calibrated_model(real, summary, model_facts(real), candidate.parameters)
    save_model(real, job.outputs["float"])
    save_model(calibrated.model, job.outputs["model"])
    candidate.parameters.save(job.outputs["parameters"])
    made, request = candidate.assignment.record, candidate.start.request
    everywhere = request.lane.everywhere
    record = record_json(made, candidate.parameters, summary, calibrated.provenance, everywhere=everywhere)
    record["warnings"] += idle
    loaded = request.loaded
    if loaded is not None and job.optional("scales") is not None:
        record |= loaded_facts(loaded, candidate.parameters, record["warnings"])
    write_json(job, "record", {**record, "tuning": tuned.record})
