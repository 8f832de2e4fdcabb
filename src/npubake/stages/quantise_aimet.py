"""stages: ``quantise_aimet``, AIMET in place of calibrate and tune: its QDQ model. An adapter."""

from __future__ import annotations

from npubake.calibration.samples import SampleSet
from npubake.graph.model_file import save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.toolchains.qualcomm.aimet.quantising import quantise
from npubake.toolchains.qualcomm.aimet.settings import settings_of


def run(job: Job) -> None:
    """Write the QDQ model, AIMET's encodings and the record: provenance, tensors, weights, coverage, versions.

    Parameters: ``lane``; ``march`` of the SoC (``v73``, or of several ``v73,v75``); ``method`` of calibration;
    ``weight_bits`` where the recipe says them. Raises StageError as ``quantising.quantise`` does.
    """
    samples = job.input("samples")
    with SampleSet.open(samples) as opened:
        count = opened.count
    summary, settings = GraphSummary.load(job.input("graph")), settings_of(job.params)
    made = quantise(job.input("model"), samples, summary, settings, lambda seen: job.progress(seen, count))
    save_model(made.model, job.outputs["model"])
    job.outputs["encodings"].write_text(made.encodings, encoding="utf-8")
    write_json(job, "record", made.record)
