"""stages: ``adapt``, the decided float model as QDQ in the forms that the HTP compiler takes. An adapter.

Parameters: see ``docs/architecture.md``. Without input ``parameters`` the float model, with its edges; with
``quantised`` another quantiser's QDQ model, of which the edges alone are made.
"""

from __future__ import annotations

import json

from npubake.calibration.statistics import Statistics
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages.json_files import write_json
from npubake.toolchains.qualcomm.adapting.adapt import adapt
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest, Sources
from npubake.toolchains.qualcomm.aimet.adopting import adopt


def run(job: Job) -> None:
    """Write ``model``, ``compilable`` and ``record``. StageError where the parameters belong to another graph."""
    made = _adopted(job) or adapt(
        load_model(job.input("model")),
        GraphSummary.load(job.input("graph")),
        _sources(job),
        AdaptRequest.from_params(job.params),
    )
    save_model(made.model, job.outputs["model"])
    save_model(made.compilable, job.outputs["compilable"])
    write_json(job, "record", made.record)


def _adopted(job: Job) -> Adapted | None:
    """Another quantiser's model with its edges; None where there is none."""
    quantised = job.optional("quantised")
    if quantised is None:
        return None
    record = json.loads(job.input("quantised_record").read_text(encoding="utf-8"))
    return adopt(load_model(quantised), record, AdaptRequest.from_params(job.params))


def _sources(job: Job) -> Sources:
    given = job.optional("parameters")
    if given is None:
        return Sources()
    parameters = QuantizationParameters.load(given)
    parameters.require_graph(job.input("graph"))
    observed = job.optional(_observed(job))
    return Sources(parameters=parameters, statistics=Statistics.load(observed).tensors if observed is not None else {})


def _observed(job: Job) -> str:
    """The port of the statistics of the graph that tune started from."""
    decisions = job.optional("decisions")
    if decisions is None:
        return "statistics"
    record = json.loads(decisions.read_text(encoding="utf-8"))
    start = record.get("tuning", {}).get("start", "optimised")
    return "transformed_statistics" if start == "transformed" else "statistics"
