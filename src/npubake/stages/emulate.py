"""stages: ``emulate``, the compiled artifact in the vendor's emulator beside the float and the QDQ model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.toolchains.board_edges import Arrays, BoardEdges
from npubake.toolchains.qualcomm.htp.emulation import Artifact, How, emulate
from npubake.toolchains.qualcomm.release.agreement import Agreement
from npubake.toolchains.recorded import Recorded, write_recorded
from npubake.verify.comparison import TracedModel, evenly
from npubake.verify.feeding import Feeder


def run(job: Job) -> None:
    """Write ``figures``, of every output against the float model and against the QDQ model, and ``outputs``, the
    archive of what the artifact was fed and answered. Examples are evenly spaced among the samples.
    """
    contract = json.loads(job.input("contract").read_text(encoding="utf-8"))
    artifact = Artifact(
        wrapper=job.input("wrapper").read_bytes(), binary=job.input("binary").read_bytes(), contract=contract
    )
    how = How(processes=job.threads, progress=job.progress)
    measure_artifact(job, contract, lambda feeds: emulate(artifact, feeds, how))


def measure_artifact(
    job: Job, contract: Mapping[str, Any], answer: Callable[[Sequence[Arrays]], Sequence[Arrays]]
) -> None:
    """The same of whatever runs the artifact. answer: its own inputs, an example each -> its own outputs."""
    models = (TracedModel.load(job.input("reference"), None),
              TracedModel.load(job.input("quantised"), job.input("record")))  # fmt: skip
    agreement, edges = Agreement(contract, job.params.get("metric", "")), BoardEdges(contract)
    agreement.require(list(models[0].outputs))
    with SampleSet.open(job.input("samples")) as samples:
        feeder = Feeder.of(contract, samples)
        chosen = evenly(samples.count, job.params["count"])
        feeds = [edges.peel(feeder.candidate(index)) for index in chosen]
        made = answer(feeds)
        done = [
            Recorded(example=samples.describe(index), inputs=given, outputs=outputs)
            for index, given, outputs in zip(chosen, feeds, made, strict=True)
        ]
        write_recorded(job.outputs["outputs"], done)
        sessions = [
            TensorSession(model.path, (entry.name for entry in model.outputs.values()), job.threads) for model in models
        ]
        for index, example in zip(chosen, done, strict=True):
            values = [session.run(feeder.read(index).reference) for session in sessions]
            agreement.add(
                example,
                *(
                    {old: entry.real(found[entry.name]) for old, entry in model.outputs.items()}
                    for model, found in zip(models, values, strict=True)
                ),
            )
        facts = {"version": 1, "kind": "tensors", "boundary": job.params["boundary"], "random": samples.random}
    write_json(job, "figures", {**facts, **agreement.to_json()})
