"""Time of the integer model against the float model: medians and ratios of interleaved runs, one process a model.

    python benchmarks/integer_model.py models/digits_yolo_640.onnx [--repetitions 15] [--lanes a8w8 a16w8 fp16_a8w8]

Each model has its own process, since sessions of one process spin against each other; the processes take turns, one run
each, and a ratio is formed within each turn. Ranges come from noise in 0..1: time does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
import onnxruntime

from npubake.calibration.statistics import BUCKETS, SHIFT, TensorStatistics
from npubake.fixedpoint.lower import lower_model
from npubake.graph.importing import import_model
from npubake.graph.optimizing import Optimized, optimize_model
from npubake.quant.assign import Subject, assign
from npubake.quant.model_facts import model_facts
from npubake.quant.request import parse_request


def feeds_of(session: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {entry.name: generator.random(entry.shape, np.float32) for entry in session.get_inputs()}


def open_session(model: bytes | str, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def serve(path: str, threads: int) -> None:
    """Child: one timed run for every line read."""
    session = open_session(path, threads)
    feeds = feeds_of(session)
    for _ in range(3):
        session.run(None, feeds)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        session.run(None, feeds)
        print((time.perf_counter() - start) * 1e3, flush=True)


def noise_statistics(optimized: Optimized) -> dict[str, TensorStatistics]:
    model = onnx.ModelProto()
    model.CopyFrom(optimized.model)
    have = {value.name for value in model.graph.output}
    names = optimized.summary.quantisable()
    made = [name for name in names if name not in optimized.summary.inputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in have)
    session = open_session(model.SerializeToString(), 2)
    values = feeds_of(session)
    values.update(zip(made, session.run(made, values), strict=True))
    found = {}
    for name in names:
        data = np.ascontiguousarray(values[name], np.float32)
        buckets = np.bincount((data.view(np.uint32) >> SHIFT).ravel(), minlength=BUCKETS).astype(np.int64)
        found[name] = TensorStatistics(
            minimum=float(data.min()), maximum=float(data.max()), count=data.size, buckets=buckets
        )
    return found


def build(optimized: Optimized, seen: dict[str, TensorStatistics], lane: str) -> onnx.ModelProto:
    subject = Subject(
        summary=optimized.summary, graph_digest="0" * 64, facts=model_facts(optimized.model), statistics=seen
    )
    made = assign(subject, parse_request({"lane": lane}), [])
    return lower_model(optimized.model, optimized.summary, made.parameters, "float32").model


def measure(models: dict[str, Path], repetitions: int, threads: int) -> dict[str, list[float]]:
    """Milliseconds of each turn, by name."""
    command = [sys.executable, __file__, "--serve", "--threads", str(threads)]
    children = {
        name: subprocess.Popen([*command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name, path in models.items()
    }
    for child in children.values():
        assert _pipe(child.stdout).readline() == "ready\n"
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(repetitions):
        for name, child in children.items():
            _pipe(child.stdin).write("run\n")
            _pipe(child.stdin).flush()
            times[name].append(float(_pipe(child.stdout).readline()))
    for child in children.values():
        _pipe(child.stdin).close()
        child.wait()
    return times


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--lanes", nargs="*", default=["a8w8", "a16w8", "fp16_a8w8"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.model, arguments.threads)
        return
    optimized = optimize_model(import_model(Path(arguments.model).read_bytes(), {}))
    seen = noise_statistics(optimized)
    with tempfile.TemporaryDirectory() as folder:
        models = {"float": Path(folder, "float.onnx")}
        onnx.save(optimized.model, models["float"])
        for lane in arguments.lanes:
            models[lane] = Path(folder, f"{lane}.onnx")
            onnx.save(build(optimized, seen, lane), models[lane])
        times = measure(models, max(9, arguments.repetitions), arguments.threads)
    report = {
        name: {
            "median_ms": round(statistics.median(values), 3),
            "ratio_to_float": round(statistics.median(a / b for a, b in zip(values, times["float"], strict=True)), 3),
        }
        for name, values in times.items()
    }
    print(json.dumps({"model": Path(arguments.model).name, "threads": arguments.threads, "results": report}, indent=1))


if __name__ == "__main__":
    main()
