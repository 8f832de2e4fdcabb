"""stages: ``transform``, the optimised float graph made easier to quantise, its function unchanged. An adapter.

Parameters: ``cross_layer_equalization`` (true), ``smoothing`` (0.5, or false), ``bias_absorption`` (false),
``activation_bits`` (8, or 16), ``layer_overrides`` of which ``set: {equivalent_transformation}`` is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.calibration.statistics import Statistics, TensorStatistics
from npubake.errors import Fault, StageError
from npubake.graph.execution import cosine
from npubake.graph.model_file import load_model, save_model
from npubake.graph.provenance import compose
from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary
from npubake.graph.transforming import Settings, Transformed, excluded_nodes, transform
from npubake.graph.transforms.ranges import ChannelRange
from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json

LEAST_COSINE = 0.99999
_EXAMPLES = 8  # of the calibration set, evenly spread, that both models run


def run(job: Job) -> None:
    """Write the model, its graph.json and the record. Raises StageError where an output is not what it was."""
    summary = GraphSummary.load(job.input("graph"))
    settings = Settings.read(job.params)
    excluded = excluded_nodes(summary, job.params.get("layer_overrides", ()))
    made = transform(
        load_model(job.input("model")), _ranges(Statistics.load(job.input("statistics"))), settings, excluded
    )
    if not made.changed:
        for port in ("model", "graph"):  # the same bytes: to observe them again costs nothing
            job.outputs[port].write_bytes(job.input(port).read_bytes())
        _write_record(job, made, {})
        return
    save_model(made.model, job.outputs["model"])
    after = summarise(made.model, compose(summary.provenance, made.provenance, made.model))
    after.save(job.outputs["graph"])
    with SampleSet.open(job.input("samples")) as samples:
        made_outputs = [name for name in summary.outputs if name in summary.producer_group()]
        cosines = _compare(job, made_outputs, samples)
    _write_record(job, made, cosines)


def _write_record(job: Job, made: Transformed, cosines: dict[str, float]) -> None:
    write_json(job, "record", {**made.to_json(), "cosine": cosines})


def _ranges(statistics: Statistics) -> dict[str, ChannelRange]:
    """Per-channel facts of the tensors that have them."""
    found = {name: _range(entry) for name, entry in statistics.tensors.items()}
    return {name: entry for name, entry in found.items() if entry is not None}


def _range(entry: TensorStatistics) -> ChannelRange | None:
    channels = entry.channels
    if channels is None or entry.count == 0:
        return None
    count = entry.count / len(channels.sums)
    return ChannelRange(
        axis=channels.axis,
        low=channels.minima,
        high=channels.maxima,
        mean=channels.sums / count,
        square=channels.squares / count,
    )


def _compare(job: Job, outputs: Iterable[str], samples: SampleSet) -> dict[str, float]:
    """The least cosine of each output between the model before and after. Raises StageError below LEAST_COSINE."""
    wanted = tuple(outputs)
    before, after = (TensorSession(path, wanted, job.threads) for path in (job.input("model"), job.outputs["model"]))
    least = dict.fromkeys(wanted, 1.0)
    for index in sorted({index * samples.count // _EXAMPLES for index in range(_EXAMPLES)}):
        feeds = samples.read(index)
        old, new = before.run(feeds), after.run(feeds)
        least = {name: min(value, cosine(old[name], new[name])) for name, value in least.items()}
    faults = [
        Fault(
            what=f"output {name!r} has cosine {value:.7f} with what it was, below {LEAST_COSINE}",
            where=name,
            hint="exclude layers before it: layer_overrides, set: {equivalent_transformation: false}",
        )
        for name, value in least.items()
        if value < LEAST_COSINE
    ]
    if faults:
        raise StageError(*faults)
    return least
