"""npubake's side of the benchmark: its rungs, each run through the stages of a build in a fresh process.

    python benchmarks/rungs.py RUNG MODEL.onnx DATA.npz OUTPUTS.npz STARTED     # one run; ``npubake_result`` starts it

The stages are those of a recipe, from ``import`` to ``quantize``, in the order of ``plan/road.py``. What is measured is
the integer model that a build releases, its outputs read back by their scales; peers are measured on their float
simulation, which is kinder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from floating import float_outputs, session, sqnr_of_outputs
from peer_runner import peak_megabytes
from peers import LIMIT_SECONDS, load, reason

from models import Subject
from npubake.pipeline.pool import FIXED

THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to quantise. calibrate: its parameters; tune: what it adds to them, None where the stage is left out;
    transform: parameters of that stage, None where it is left out. Both run where a build of such a recipe runs them
    (``plan/parameters.py``): a transform at level best, and at level default for activations of 8 bits.
    """

    name: str
    title: str
    lane: str
    calibrate: dict[str, Any] = field(default_factory=dict)
    tune: dict[str, Any] | None = None
    transform: dict[str, Any] | None = None


RUNGS: tuple[Rung, ...] = (
    Rung(name="minmax", title="minmax, nothing judged", lane="a8w8", calibrate={"calibration": {"method": "minmax"}}),
    Rung(name="thresholds", title="default thresholds, nothing judged", lane="a8w8"),
    Rung(name="default", title="default", lane="a8w8", tune={}, transform={}),
    Rung(
        name="default_int8",
        title="default, no int16",
        lane="a8w8",
        tune={"tuning": {"max_int16": 0}},
        transform={},
    ),
    Rung(
        name="default_transformed",
        title="default and equivalent_transformation",
        lane="a8w8",
        tune={"equivalent_transformation": True},
        transform={},
    ),
    Rung(
        name="best_int8",
        title="best, no int16",
        lane="a8w8",
        tune={"tuning": {"level": "best", "max_int16": 0}},
        transform={},
    ),
    Rung(
        name="best",
        title="best, at most 8 int16",
        lane="a8w8",
        tune={"tuning": {"level": "best", "max_int16": 8}},
        transform={},
    ),
    Rung(name="a16_minmax", title="minmax", lane="a16w8", calibrate={"calibration": {"method": "minmax"}}),
    Rung(name="a16_default", title="default", lane="a16w8", tune={}),
    Rung(
        name="a16_best",
        title="best",
        lane="a16w8",
        tune={"tuning": {"level": "best"}},
        transform={"activation_bits": 16},
    ),
)

_ALONE: dict[str, Any] = {"level": "none", "judge": False}


def _threshold(name: str, title: str, **calibration: Any) -> Rung:
    return Rung(name=name, title=title, lane="a8w8", calibrate={"calibration": calibration})


def _step(name: str, title: str, **asked: Any) -> Rung:
    """One step of ``tune`` alone, on minmax ranges, kept whatever it gives."""
    calibrate = {"calibration": {"method": "minmax"}}
    return Rung(name=name, title=title, lane="a8w8", calibrate=calibrate, tune={"tuning": _ALONE, **asked})


# One technique at a time, on the ranges of minmax: what the document shows of each.
TECHNIQUES: tuple[Rung, ...] = (
    _threshold("method_percentile", "calibration: {method: percentile}", method="percentile"),
    _threshold("method_mse", "calibration: {method: mse}", method="mse"),
    _threshold("method_entropy", "calibration: {method: entropy}", method="entropy"),
    _threshold("method_mean_minmax", "calibration: {method: mean_minmax}", method="mean_minmax"),
    _threshold("symmetric", "calibration: {asymmetric: false}", method="minmax", asymmetric=False),
    Rung(
        name="per_tensor",
        title="weights: {granularity: per_tensor}",
        lane="a8w8",
        calibrate={"calibration": {"method": "minmax"}, "weights": {"granularity": "per_tensor"}},
    ),
    Rung(
        name="transformed",
        title="equivalent_transformation: {}",
        lane="a8w8",
        calibrate={"calibration": {"method": "minmax"}},
        tune={"tuning": _ALONE, "equivalent_transformation": True},
        transform={},
    ),
    _step("bias_analytic", "bias_correction: analytic", bias_correction="analytic"),
    _step("bias_empirical", "bias_correction: empirical", bias_correction="empirical"),
    _step("weight_scale", "search_weight_scale: {}", search_weight_scale={}),
    _step("hessian", "hessian: {}", hessian={}),
    _step("mod", "mod: {}", mod={}),
)


def rung_named(name: str) -> Rung:
    (found,) = (rung for rung in (*RUNGS, *TECHNIQUES) if rung.name == name)
    return found


def npubake_result(cache: Path, subject: Subject, rung: Rung) -> dict[str, Any]:
    """Load, seconds, peak memory and SQNR of one rung, or ``failed`` with the reason."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "outputs.npz"
        data = cache / f"{subject.name}.npz"
        words = [sys.executable, __file__, rung.name, subject.model_path, data, outputs, time.time()]
        command, busy = [str(word) for word in words], load()
        try:
            done = subprocess.run(
                command, env={**os.environ, **FIXED}, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {LIMIT_SECONDS} s"}
        if done.returncode:
            return {"failed": reason(done.stderr) or f"ended with {done.returncode}"}
        with np.load(outputs) as arrays:
            found = [arrays[name] for name in sorted(arrays.files)]
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    return {**facts, "load": busy, "sqnr_db": sqnr_of_outputs(float_outputs(subject), found)}


@dataclass(slots=True, kw_only=True)
class Road:
    """Stages run one after another; ``files`` holds what each made, by (stage, port)."""

    folder: Path
    files: dict[tuple[str, str], Path] = field(default_factory=dict)

    def run(self, stage: str, params: Mapping[str, Any], inputs: Mapping[str, tuple[str, str]], role: str = "") -> None:
        """Run one stage; inputs: port -> (role, port) of what an earlier stage made."""
        from importlib import import_module

        from npubake.pipeline.stage import Job
        from npubake.stages import STAGES

        role = role or stage
        outputs = {port: self.folder / f"{role}.{port}" for port in STAGES[stage].outputs}
        self.files |= {(role, port): path for port, path in outputs.items()}
        module, function = STAGES[stage].run.split(":")
        given = {port: (self.files[source],) for port, source in inputs.items()}
        getattr(import_module(module), function)(Job(params=params, inputs=given, outputs=outputs, threads=THREADS))

    def same(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """True where two files hold the same bytes."""
        return self.files[one].read_bytes() == self.files[other].read_bytes()


def quantised(rung: Rung, road: Road) -> None:
    """From the model and the sample set (roles ``given``) to the integer model (role ``quantize``)."""
    decided = calibrated(rung, road)
    real = {"model": ("tune", "float"), "graph": ("tune", "graph")}
    if decided == "calibrate":
        real = {"model": ("optimize", "model"), "graph": ("optimize", "graph")}
    road.run("quantize", {}, {**real, "parameters": (decided, "parameters")})


def calibrated(rung: Rung, road: Road) -> str:
    """From the model and the sample set (roles ``given``) to the fake-quantised model; the role that made it."""
    samples = {"samples": ("given", "samples")}
    road.run("import", {}, {"model": ("given", "model")})
    road.run("optimize", {}, {"model": ("import", "model")})
    real = {"model": ("optimize", "model"), "graph": ("optimize", "graph")}
    road.run("observe", {}, {**real, **samples})
    observed = {**real, "statistics": ("observe", "statistics")}
    params = {"lane": rung.lane, **rung.calibrate}
    road.run("calibrate", params, observed)
    decided = "calibrate"
    if rung.tune is not None:
        given = {**observed, **samples, "parameters": ("calibrate", "parameters")}
        if rung.transform is not None:
            road.run("transform", rung.transform, {**observed, **samples})
            changed = {"model": ("transform", "model"), "graph": ("transform", "graph")}
            if road.same(("optimize", "model"), ("transform", "model")):  # a build restores what is there already
                road.files["observe_transformed", "statistics"] = road.files["observe", "statistics"]
            else:
                road.run("observe", {}, {**changed, **samples}, role="observe_transformed")
            given |= {"transformed_model": changed["model"], "transformed_graph": changed["graph"]}
            given["transformed_statistics"] = ("observe_transformed", "statistics")
        road.run("tune", {**params, **rung.tune}, given)
        decided = "tune"
    return decided


def write_samples(path: Path, name: str, arrays: Any) -> None:
    """A sample set as the stage ``samples`` writes it, of prepared tensors."""
    from npubake.calibration.samples import Example, InputForm, SampleWriter, Source

    form = InputForm(shape=(1, *arrays.shape[1:]), dtype="float32", linear=None)
    with SampleWriter(path, {name: form}) as writer:
        for index, array in enumerate(arrays):
            source = Source(name=f"{index:05d}.npy", digest="")
            writer.add(Example(stored={name: array[None]}, geometry={}, sources={name: source}))
        writer.finish({"random": False})


def integer_outputs(road: Road, name: str, held_out: Any) -> dict[str, Any]:
    """The integer model's outputs on the held-out inputs, in real units, in the order of the float model's."""
    from npubake.verify.comparison import TracedModel

    model = TracedModel.load(road.files["quantize", "model"], road.files["quantize", "record"])
    running = session(str(model.path), THREADS)
    wanted = [traced.name for traced in model.outputs.values()]
    rows = [running.run(wanted, {name: sample[None]}) for sample in held_out]
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    real = {old: traced.real(column) for (old, traced), column in zip(model.outputs.items(), columns, strict=True)}
    order = [output.name for output in session(str(road.files["given", "model"])).get_outputs()]
    return {f"{index:04d}": real[old] for index, old in enumerate(order)}


def main() -> None:
    """One run in this process; prints one JSON line as ``peer_runner`` does, and what was kept."""
    rung, model, data_file, outputs_file, started = sys.argv[1:]
    with np.load(data_file) as data:
        calibration, held_out, name = data["calibration"], data["held_out"], str(data["input"])
    with tempfile.TemporaryDirectory() as folder:
        road = Road(folder=Path(folder), files={("given", "model"): Path(model)})
        road.files["given", "samples"] = Path(folder) / "samples.npz"
        write_samples(road.files["given", "samples"], name, calibration)
        begin = time.perf_counter()
        quantised(rung_named(rung), road)
        facts: dict[str, Any] = {
            "seconds": time.perf_counter() - begin,
            "process_seconds": time.time() - float(started),
            "peak_mb": peak_megabytes(),
        }
        if ("tune", "record") in road.files:
            record = json.loads(road.files["tune", "record"].read_text(encoding="utf-8"))["tuning"]
            facts["tuning"] = {key: record[key] for key in ("kept", "score", "lifted", "start", "trials")}
        np.savez(outputs_file, **integer_outputs(road, name, held_out))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
