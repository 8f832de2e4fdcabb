"""stages: ``measure_product``, the product metric of one model, with evidence a picture. It knows no threshold."""

from __future__ import annotations

import json

from npubake.calibration.samples import SampleSet
from npubake.pipeline.stage import Job
from npubake.verify.comparison import TracedModel
from npubake.verify.product import Trial, measure_product


def run(job: Job) -> None:
    """Write ``figures``: value, figures, and the evidence that the gate's bootstrap reads."""
    model = TracedModel.load(job.input("model"), job.optional("record"))
    with SampleSet.open(job.input("samples")) as samples:
        trial = Trial(model=model, samples=samples, threads=job.threads, progress=job.progress)
        figures = measure_product(
            job.params["metric"], job.params.get("options", {}), trial, job.inputs.get("labels", ())
        )
    text = json.dumps(figures, sort_keys=True, indent=None, separators=(",", ":"), allow_nan=False)
    job.outputs["figures"].write_text(text + "\n", encoding="utf-8")
