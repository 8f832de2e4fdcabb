"""What one pass of ``observe`` costs: against a plain float loop over the same images, and in memory.

    python benchmarks/observe.py [--model models/digits_yolo_640.onnx] [--repetitions 5]
    python benchmarks/observe.py --model FOLDER/efficientnet_lite0.onnx --data FOLDER/efficientnet_lite0.npz

The second takes a subject of benchmarks/models.py. Both sides run warm in one process with the same threads, one after
the other in turns; medians and their ratio are reported. Peak resident size is measured in fresh processes at 8 and at
128 samples (the examples are repeated to reach them).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.collection import SourceFiles, collect
from npubake.calibration.inference import TensorSession
from npubake.calibration.inputs import Request
from npubake.calibration.observing import observe
from npubake.calibration.samples import Example, InputForm, SampleSet, SampleWriter
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.recipe.data import list_data
from npubake.recipe.presets import PRESETS
from npubake.stages import import_model, optimize

ROOT = Path(__file__).resolve().parent.parent


def prepare(folder: Path, source: Path, data: Path, preset: str) -> None:
    """The optimised model, its graph.json and one sample set, in ``folder``. data: a folder of pictures for ``preset``,
    or an npz whose ``calibration`` holds prepared samples of the model's one input.
    """
    imported = Job(params={}, inputs={"model": (source,)}, outputs={"model": folder / "imported.onnx"})
    import_model.run(imported)
    outputs = {"model": folder / "model.onnx", "graph": folder / "graph.json"}
    optimize.run(Job(params={}, inputs={"model": (folder / "imported.onnx",)}, outputs=outputs))
    graph = GraphSummary.load(folder / "graph.json")
    if data.suffix == ".npz":
        prepared(folder, graph, np.load(data)["calibration"])
        return
    listing = list_data(data, lambda path: hashlib.sha256(path.read_bytes()).hexdigest())
    files = SourceFiles(json.loads(listing.to_json()), listing.paths)
    request = Request.from_params({"preset": PRESETS[preset].expanded()})
    collect(files, graph, request, folder / "samples.npz", lambda _done, _total: None)


def prepared(folder: Path, graph: GraphSummary, values: NDArray[np.float32]) -> None:
    (name,) = graph.inputs
    form = InputForm(shape=graph.tensors[name].shape, dtype="float32", linear=None)
    with SampleWriter(folder / "samples.npz", {name: form}) as writer:
        for value in values:
            writer.add(Example(stored={name: value.reshape(form.shape)}, geometry={}, sources={}))
        writer.finish({"random": False})


def repeated(folder: Path, count: int) -> Path:
    """The first examples of the set, over and over, until there are ``count``."""
    path = folder / f"samples{count}.npz"
    with SampleSet.open(folder / "samples.npz") as samples, SampleWriter(path, samples.inputs) as writer:
        for index in range(count):
            chosen = index % samples.count
            writer.add(
                Example(
                    stored=samples.read_stored(chosen),
                    geometry=samples.geometry(chosen),
                    sources=samples.sources(chosen),
                )
            )
        writer.finish({"random": False})
    return path


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds on the clock, and of the processor by all threads (which neighbours on the machine lengthen less)."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Spent:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Spent) -> Spent:
        return Spent(self.wall - start.wall, self.processor - start.processor)


def plain_loop(folder: Path, samples: SampleSet, threads: int) -> Spent:
    """Float inference over the samples: the model's own outputs, session made before the clock starts."""
    session = TensorSession(folder / "model.onnx", GraphSummary.load(folder / "graph.json").outputs, threads)
    session.run(samples.read(0))
    start = Spent.now()
    for index in range(samples.count):
        session.run(samples.read(index))
    return Spent.now().since(start)


def observe_pass(folder: Path, samples: SampleSet, threads: int) -> Spent:
    """The pass as the stage runs it, session included."""
    graph = GraphSummary.load(folder / "graph.json")
    start = Spent.now()
    observe(folder / "model.onnx", graph, samples, threads, lambda _done, _total: None)
    return Spent.now().since(start)


def peak_megabytes(folder: Path, count: int, threads: int) -> float:
    repeated(folder, count)
    arguments = [sys.executable, __file__, "--peak", str(folder), str(count), str(threads)]
    return float(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def peak(folder: Path, count: int, threads: int) -> None:
    """One pass in a fresh process, then its own peak (``ru_maxrss`` would be the parent's, kept over exec)."""
    with SampleSet.open(folder / f"samples{count}.npz") as samples:
        observe_pass(folder, samples, threads)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "digits_yolo_640.onnx")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "digits" / "calibration")
    parser.add_argument("--preset", default="yolo_640")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, options.model, options.data, options.preset)
        plain, observed = [], []
        with SampleSet.open(repeated(folder, options.samples)) as samples:
            observe_pass(folder, samples, options.threads)
            for _ in range(options.repetitions):
                plain.append(plain_loop(folder, samples, options.threads))
                observed.append(observe_pass(folder, samples, options.threads))
        ratios = [
            statistics.median(getattr(b, kind) / getattr(a, kind) for a, b in zip(plain, observed, strict=True))
            for kind in ("wall", "processor")
        ]
        peaks = [peak_megabytes(folder, count, options.threads) for count in (8, 128)]
    each = 1e3 / options.samples
    print(f"{options.model.name}, {options.samples} samples, {options.threads} threads, {options.repetitions} turns")
    print(f"plain float loop  {statistics.median(spent.wall for spent in plain) * each:7.1f} ms a sample (median)")
    print(f"observe           {statistics.median(spent.wall for spent in observed) * each:7.1f} ms a sample (median)")
    print(f"ratio             {ratios[0]:7.2f} on the clock, {ratios[1]:.2f} of processor time (medians of turns)")
    print(f"peak memory       {peaks[0]:7.1f} MB at 8 samples, {peaks[1]:.1f} MB at 128: {peaks[1] / peaks[0]:.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        peak(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
