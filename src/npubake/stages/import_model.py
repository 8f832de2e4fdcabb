"""stages: ``import``, the bytes of a source model enter, the original float model leaves.

Parameters: ``inputs: {name: {shape: [sizes], ...}}`` (other keys of an input are not read), ``baseline_cosine``
(default 0.9999). Input ``model``: the source file; ``data`` (any number): the files beside it that keep its weights,
sorted by the names that the model calls them by; ``baseline`` (optional): an npz, see ``graph.baseline``.
"""

from __future__ import annotations

from npubake.graph.baseline import DEFAULT_COSINE, compare_baseline
from npubake.graph.importing import import_model
from npubake.graph.model_file import external_files, save_model
from npubake.pipeline.stage import Job


def run(job: Job) -> None:
    """Raises RecipeError with every fault of the model, StageError where the baseline is missed."""
    stated = job.params.get("inputs", {})
    shapes = {name: facts.get("shape") for name, facts in stated.items()}
    data = job.input("model").read_bytes()
    model = import_model(data, shapes, weights=external_files(data, job.inputs.get("data", ())))
    baseline = job.optional("baseline")
    if baseline is not None:
        compare_baseline(model, baseline, float(job.params.get("baseline_cosine", DEFAULT_COSINE)))
    save_model(model, job.outputs["model"])
