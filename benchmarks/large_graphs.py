"""Processor seconds that each stage needs for graphs of 1,000 to 16,000 nodes: linear, or worse?

``python benchmarks/large_graphs.py [--nodes 1000,2000,...] [--shape SHAPE]`` prints a table; its last row
is the power of the node count with which time grew between the two rows above it: 1 is linear, 2 quadratic.

chain: blocks of a small Conv, Sigmoid and Add of the input, which thousands read then; shared: all blocks read the same
weights; wide: 100 branches from one tensor, concatenated; batch_norm, identity, hard_swish: behind each Conv a
BatchNormalization and Relu, an Identity and Tanh, or HardSwish as exporters write it, which optimize folds or fuses.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.calibration.statistics import Statistics
from npubake.fixedpoint.lower import lower_model
from npubake.graph.importing import import_model
from npubake.graph.model_file import load_model, save_model
from npubake.graph.optimizing import optimize_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.recipe.presets import PRESETS
from npubake.stages import calibrate, observe, samples

CHANNELS = 4
SIZE = (1, CHANNELS, 4, 4)
Written = tuple[list[onnx.NodeProto], list[onnx.TensorProto]]  # nodes, the last of which makes the result; constants
STEPS = ("import", "optimize", "observe", "calibrate", "quantize")


def network(nodes: int, shape: str) -> onnx.ModelProto:
    """About ``nodes`` nodes."""
    generator = np.random.default_rng(0)
    tensors = [_held("three", 3.0), _held("nought", 0.0), _held("six", 6.0)] if shape == "hard_swish" else []
    made: list[onnx.NodeProto] = []

    def weight(index: int) -> str:
        name = "w" if shape == "shared" else f"w{index}"
        if shape != "shared" or not tensors:
            tensors.append(_held(name, generator.standard_normal((CHANNELS, CHANNELS, 1, 1)) / 4))
        return name

    ends = ["x"] * (100 if shape == "wide" else 1)
    written = _BEHIND.get(shape, _gated)
    count = nodes // (5 if shape == "hard_swish" else 3)
    for index in range(count):
        lane = index % len(ends)
        made.append(helper.make_node("Conv", [ends[lane], weight(index)], [f"c{index}"], name=f"conv{index}"))
        behind, held = written(index)
        made += behind
        tensors += held
        ends[lane] = behind[-1].output[0]
    made.append(helper.make_node("Concat", ends, ["y"], name="last", axis=1))
    graph = helper.make_graph(
        made,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SIZE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CHANNELS * len(ends), 4, 4])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _held(name: str, value: float | NDArray[Any]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, np.float32), name)


def _gated(index: int) -> Written:
    gate = helper.make_node("Sigmoid", [f"c{index}"], [f"g{index}"], name=f"sigmoid{index}")
    return [gate, helper.make_node("Add", ["x", f"g{index}"], [f"s{index}"], name=f"add{index}")], []


def _normalised(index: int) -> Written:
    names = [f"{word}{index}" for word in ("gain", "bias", "mean", "variance")]
    held = [_held(name, np.full(CHANNELS, value)) for name, value in zip(names, (1.5, 0.1, 0.1, 0.5), strict=True)]
    norm = helper.make_node("BatchNormalization", [f"c{index}", *names], [f"n{index}"], name=f"norm{index}")
    return [norm, helper.make_node("Relu", [f"n{index}"], [f"s{index}"], name=f"relu{index}")], held


def _passed(index: int) -> Written:
    same = helper.make_node("Identity", [f"c{index}"], [f"i{index}"], name=f"identity{index}")
    return [same, helper.make_node("Tanh", [f"i{index}"], [f"s{index}"], name=f"tanh{index}")], []


def _hard_swish(index: int) -> Written:
    """As exporters write it."""
    conv, shifted, cut, product, result = (f"{letter}{index}" for letter in "caqps")
    return [
        helper.make_node("Add", [conv, "three"], [shifted], name=f"shift{index}"),
        helper.make_node("Clip", [shifted, "nought", "six"], [cut], name=f"clip{index}"),
        helper.make_node("Mul", [conv, cut], [product], name=f"mul{index}"),
        helper.make_node("Div", [product, "six"], [result], name=f"div{index}"),
    ], []


# What stands behind each Conv.
_BEHIND = {"batch_norm": _normalised, "identity": _passed, "hard_swish": _hard_swish}
SHAPES = ("chain", "wide", "shared", *_BEHIND)


def measure(model: onnx.ModelProto, folder: Path) -> dict[str, float]:
    """Processor seconds of each step, all threads together: the same on a busy machine."""
    seconds: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = step()
        seconds[name] = time.process_time() - start
        return result

    imported = timed("import", lambda: import_model(model.SerializeToString(), {}))
    optimized = timed("optimize", lambda: optimize_model(imported))
    paths = {name: folder / name for name in ("model.onnx", "graph.json", "listing.json", "x.npy", "samples.npz")}
    save_model(optimized.model, paths["model.onnx"])
    optimized.summary.save(paths["graph.json"])
    np.save(paths["x.npy"], np.random.default_rng(1).standard_normal(SIZE).astype(np.float32))
    paths["listing.json"].write_text(
        '{"kind": "npy", "examples": [{"": "x.npy"}], "files": [{"name": "x.npy", "digest": "0"}]}'
    )
    inputs = {"listing": (paths["listing.json"],), "files": (paths["x.npy"],), "graph": (paths["graph.json"],)}
    outputs = {"samples": paths["samples.npz"], "archive": folder / "archive"}
    samples.run(Job(params={"preset": PRESETS["classification"].expanded()}, inputs=inputs, outputs=outputs))
    both = {"model": (paths["model.onnx"],), "graph": (paths["graph.json"],)}
    statistics, parameters = folder / "statistics", folder / "parameters"
    seen = Job(
        params={}, inputs={**both, "samples": (paths["samples.npz"],)}, outputs={"statistics": statistics}, threads=2
    )
    timed("observe", lambda: observe.run(seen))
    chosen = Job(
        params={"lane": "a8w8"},
        inputs={**both, "statistics": (statistics,)},
        outputs={"model": folder / "calibrated", "parameters": parameters, "record": folder / "record"},
    )
    timed("calibrate", lambda: calibrate.run(chosen))
    summary = GraphSummary.load(paths["graph.json"])
    loaded = load_model(paths["model.onnx"])
    timed("quantize", lambda: lower_model(loaded, summary, QuantizationParameters.load(parameters), "int32"))
    assert Statistics.load(statistics).samples == 1
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="1000,2000,4000,8000,16000", help="sizes, separated by commas")
    parser.add_argument("--shape", choices=SHAPES, default="chain")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.nodes.split(",")]
    print("nodes".rjust(7), *(step.rjust(10) for step in STEPS), "  seconds", sep="")
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(network(size, arguments.shape), Path(folder)))
        print(f"{size:7d}", *(f"{rows[-1][step]:10.2f}" for step in STEPS), sep="", flush=True)
    if len(rows) > 1:
        growth = np.log(sizes[-1] / sizes[-2])
        exponents = (np.log(rows[-1][step] / rows[-2][step]) / growth for step in STEPS)
        print("  power", *(f"{power:10.2f}" for power in exponents), sep="")


if __name__ == "__main__":
    main()
