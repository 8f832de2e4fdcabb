"""What rounding costs and gives, layer by layer: nearest, with bias correction, searched scales, Hessian, learned.

    python benchmarks/rounding.py --model MODEL.onnx --data DATA.npz [--learn 4]

DATA.npz holds ``calibration`` and ``held_out``, float32 [samples, ...] without the batch axis (benchmarks/models.py
makes such files). Everything is determined from the first; figures are means over layers, in dB, of the layer's float
output against its error on the second (weights rounded, inputs as in the float model), and seconds of one process.
``--learn``: MOD for so many layers, evenly taken, on quantised inputs: their loss before and after, on the second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rungs import write_samples

from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.graph.model_file import load_model
from npubake.graph.summary import WEIGHTED_KINDS, GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.model_facts import model_facts
from npubake.quant.operands import weighted_operand
from npubake.quant.sqnr import sqnr_db
from npubake.stages import import_model, optimize
from npubake.tuning.hessian import Grid, HessianSettings, output_error, round_with_hessian
from npubake.tuning.layer_problem import InputQuantiser, LayerProblem
from npubake.tuning.learning import LearningSettings, learn_rounding
from npubake.tuning.matrix_form import MatrixForm, chosen_positions, columns_at, matrix_forms
from npubake.tuning.moments import POSITIONS, Moments, float_inputs, positions_of
from npubake.tuning.weight_search import ScaleSearch, search_scales

Wide = NDArray[np.float64]
SIDES = ("calibration", "held_out")
_NO_ERROR_DB = 300.0  # so that a layer without an error leaves a mean


class WeightedModel:
    """One model's layers with weights, and both sides' sample sets, in ``folder``."""

    def __init__(self, source: Path, data: Path, folder: Path) -> None:
        self.folder, self.model = folder, folder / "model.onnx"
        imported = Job(params={}, inputs={"model": (source,)}, outputs={"model": folder / "imported.onnx"})
        import_model.run(imported)
        outputs = {"model": self.model, "graph": folder / "graph.json"}
        optimize.run(Job(params={}, inputs={"model": (folder / "imported.onnx",)}, outputs=outputs))
        graph, model = GraphSummary.load(folder / "graph.json"), load_model(self.model)
        groups = [group for group in graph.groups if group.kind in WEIGHTED_KINDS]
        self.forms = matrix_forms(model, graph, [group.name for group in groups])
        facts = model_facts(model)
        self.operands = {group.name: weighted_operand(graph, group, facts) for group in groups}
        (self.input,) = graph.inputs
        with np.load(data) as arrays:
            for side in SIDES:
                write_samples(folder / f"{side}.npz", self.input, arrays[side])

    def weights(self, name: str) -> Wide:
        return self.forms[name].to_matrix(self.operands[name].weights).astype(np.float64)

    def moments(self, side: str, threads: int) -> dict[str, Moments]:
        with SampleSet.open(self.folder / f"{side}.npz") as samples:
            feeds = {index: samples.read(index) for index in range(samples.count)}
        return float_inputs(load_model(self.model), feeds, list(self.forms.values()), POSITIONS, threads)

    def problem(self, name: str, threads: int) -> LayerProblem:
        """8-bit inputs over the range of the calibration side; that side is learned from, the other judges."""
        form, weights = self.forms[name], self.weights(name)
        session = TensorSession(self.model, [form.tensor] if form.tensor != self.input else [], threads)
        columns = []
        for side in SIDES:
            with SampleSet.open(self.folder / f"{side}.npz") as samples:
                for index in range(samples.count):
                    feeds = samples.read(index)
                    chosen = chosen_positions(form, index, positions_of(form, 64))
                    columns.append(columns_at(form, {**feeds, **session.run(feeds)}[form.tensor], chosen))
        seen = sum(each.shape[2] for each in columns[: len(columns) // 2])
        inputs = np.concatenate(columns, axis=2)
        low, high = (float(end) for end in (min(inputs[..., :seen].min(), 0), max(inputs[..., :seen].max(), 0)))
        scale = (high - low) / 255 or 1.0
        return LayerProblem(
            weights=weights,
            bias=np.zeros(weights.shape[:2]),
            inputs=inputs,
            outputs=(weights @ inputs).astype(np.float32),
            quantiser=InputQuantiser(scale=scale, zero_point=float(np.rint(-low / scale)), low=0, high=255),
            seen=seen,
        )


def grid(form: MatrixForm, scales: Wide, limit: int) -> Grid:
    return Grid(scales=np.ascontiguousarray(form.by_row(scales)[:, :, None]), low=-limit, high=limit)


def widest(form: MatrixForm, weights: Wide, limit: int) -> Wide:
    """absmax / limit of each channel; 1 where all its weights are zero."""
    largest = np.abs(weights).max(axis=2)
    largest = largest.max(axis=0) if form.operator == "conv_transpose" else largest.reshape(-1)
    return np.where(largest > 0, largest / limit, 1.0)


def ways(model: WeightedModel, made: Mapping[str, Moments], limit: int) -> dict[str, Callable[[str], Wide]]:
    """Name -> the real weights that a layer is left with."""

    def nearest(name: str) -> Wide:
        on = grid(model.forms[name], widest(model.forms[name], model.weights(name), limit), limit)
        return on.values(on.rounded(model.weights(name)))

    def searched_grid(name: str) -> Grid:
        form, weights = model.forms[name], model.weights(name)
        search = ScaleSearch(low=-limit, high=limit, place=lambda wanted: wanted)
        found = search_scales(form, weights, made[name].centred(), widest(form, weights, limit), search)
        return grid(form, found.scales, limit)

    def searched(name: str) -> Wide:
        on = searched_grid(name)
        return on.values(on.rounded(model.weights(name)))

    def hessian(name: str, on: Grid) -> Wide:
        return on.values(round_with_hessian(model.weights(name), made[name].centred(), on, HessianSettings()))

    def plain(name: str) -> Wide:
        return hessian(name, grid(model.forms[name], widest(model.forms[name], model.weights(name), limit), limit))

    return {
        "nearest": nearest,
        "searched scales": searched,
        "Hessian": plain,
        "searched scales, Hessian": lambda name: hessian(name, searched_grid(name)),
    }


def table(model: WeightedModel, threads: int) -> None:
    """The table of all layers, at 8 and 4 bits."""
    start = time.perf_counter()
    made = model.moments("calibration", threads)
    print(f"{len(made)} layers, moments of the calibration side: {time.perf_counter() - start:.2f} s")
    held = model.moments("held_out", threads)
    for bits, limit in ((8, 127), (4, 7)):
        for way, weights_of in ways(model, made, limit).items():
            start = time.perf_counter()
            left = {name: model.weights(name) - weights_of(name) for name in made}
            seconds = time.perf_counter() - start
            figures = [
                statistics.mean(_decibel(model, held[name], left[name], name, centred) for name in made)
                for centred in (False, True)
            ]
            print(f"int{bits} {way:26s} {figures[0]:6.2f} dB, bias corrected {figures[1]:6.2f} dB, {seconds:6.2f} s")


def _decibel(model: WeightedModel, moments: Moments, error: Wide, name: str, centred: bool) -> float:
    signal = output_error(model.weights(name), moments.centred()).sum()
    noise = output_error(error, moments.centred() if centred else moments.raw()).sum()
    return sqnr_db(max(float(signal), 0.0), max(float(noise), 0.0), _NO_ERROR_DB)


def learned(model: WeightedModel, layers: int, threads: int) -> None:
    """MOD for some layers, against rounding to nearest on the same quantised inputs."""
    names = list(model.forms)[:: max(1, len(model.forms) // layers)][:layers]
    for name in names:
        problem = model.problem(name, threads)
        on = grid(model.forms[name], widest(model.forms[name], problem.weights, 127), 127)
        start = time.perf_counter()
        found = learn_rounding(problem, on, on.rounded(problem.weights), LearningSettings())
        gain = 10 * np.log10(found.before / max(found.after, 1e-30))
        print(f"MOD {name}: {gain:+.2f} dB on unseen inputs, kept: {found.kept}, {time.perf_counter() - start:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--learn", type=int, default=0, metavar="LAYERS")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = WeightedModel(asked.model, asked.data, Path(folder))
        table(model, asked.threads)
        if asked.learn:
            learned(model, asked.learn, asked.threads)


if __name__ == "__main__":
    main()
