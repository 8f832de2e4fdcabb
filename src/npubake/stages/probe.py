"""stages: ``probe``, whether the SoC's compiler takes the optimised model at all, before calibration. An adapter.

Parameters: see ``docs/architecture.md``; what decides the form of the graph, and the SoC, but no range.
"""

from __future__ import annotations

from npubake.graph.model_file import load_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.toolchains.qualcomm.adapting.assumed import assumed_adaptation
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.probing import look_ahead, refuse_lane


def run(job: Job) -> None:
    """Write ``report``. Refuses a lane that the SoC cannot compute, and every node that its compiler does not take."""
    platform = HtpPlatform.from_params(job.params["platform"])
    refuse_lane(platform, job.params["lane"])
    model, summary = load_model(job.input("model")), GraphSummary.load(job.input("graph"))
    adapted = assumed_adaptation(model, summary, job.params)
    report = look_ahead(adapted.compilable, platform, CompilerOptions.from_params(job.params.get("options", {})))
    write_json(job, "report", {"lane": job.params["lane"], **report})
