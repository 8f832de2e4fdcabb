"""The stages from a source model to its integer model, one after the other in a folder, on samples given as arrays."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.recipe.presets import PRESETS
from npubake.stages import calibrate, check, import_model, observe, optimize, quantize, samples

Array = NDArray[Any]
Feeds = Mapping[str, Array]
PREPARED = PRESETS["classification"].expanded()


@dataclass(frozen=True, kw_only=True)
class Baked:
    """What the stages made. files: ``stage.port`` -> path."""

    files: Mapping[str, Path]

    @property
    def summary(self) -> GraphSummary:
        return GraphSummary.load(self.files["optimize.graph"])

    @property
    def warnings(self) -> list[str]:
        """What ``check`` and ``quantize`` tell a person."""
        reports = (self.files[name] for name in ("check.report", "quantize.record") if name in self.files)
        told = [json.loads(path.read_text()) for path in reports]
        return [sentence for report in told for sentence in report["warnings"]]

    @property
    def float_nodes(self) -> set[str]:
        """Nodes that the integer model computes in float."""
        record = json.loads(self.files["quantize.record"].read_text())
        return {node for entry in record["float_nodes"] for node in entry["nodes"]}

    def run(self, stage: str, feeds: Feeds) -> list[Array]:
        """Outputs of the model that a stage made."""
        return run(self.files[f"{stage}.model"].read_bytes(), feeds)


def bake(
    model: onnx.ModelProto | Path,
    examples: Sequence[Feeds],
    folder: Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Sequence[Path] = (),
    until: str = "",
    **calibration: Any,
) -> Baked:
    """``model`` through the stages. until: the last stage to run ('' for ``quantize``); data: its weight files."""
    source = model if isinstance(model, Path) else folder / "source.onnx"
    if not isinstance(model, Path):
        source.write_bytes(model.SerializeToString())
    stated = {"inputs": {name: {"shape": list(shape)} for name, shape in (shapes or {}).items()}}
    listing, files = _listed(examples, folder)
    road: tuple[tuple[str, ModuleType, Mapping[str, Any], tuple[str, ...], tuple[str, ...]], ...] = (
        ("import", import_model, stated, ("source", "data"), ("model",)),
        ("optimize", optimize, {}, ("import.model",), ("model", "graph")),
        ("check", check, {"lane": calibration.get("lane", "a8w8")}, ("optimize.graph",), ("report",)),
        ("samples", samples, {"preset": PREPARED}, ("listing", "files", "optimize.graph"), ("samples", "archive")),
        ("observe", observe, {}, ("optimize.model", "optimize.graph", "samples.samples"), ("statistics",)),
        (
            "calibrate",
            calibrate,
            {"lane": "a8w8", "calibration": {"method": "minmax"}, **calibration},  # kinds of graphs, not of ranges
            ("optimize.model", "optimize.graph", "observe.statistics"),
            ("model", "parameters", "record"),
        ),
        (
            "quantize",
            quantize,
            {},
            ("optimize.model", "optimize.graph", "calibrate.parameters"),
            ("model", "removed", "record"),
        ),
    )
    made: dict[str, tuple[Path, ...]] = {
        "source": (source,),
        "data": tuple(data),
        "listing": (listing,),
        "files": tuple(files),
    }
    for name, stage, params, reads, makes in road:
        outputs = {port: folder / f"{name}.{port}" for port in makes}
        inputs = {("model" if key == "source" else key.rpartition(".")[2]): made[key] for key in reads if made[key]}
        stage.run(Job(params=params, inputs=inputs, outputs=outputs, threads=2))
        made |= {f"{name}.{port}": (path,) for port, path in outputs.items()}
        if name == until:
            break
    return Baked(files={key: paths[0] for key, paths in made.items() if "." in key})


def _listed(examples: Sequence[Feeds], folder: Path) -> tuple[Path, list[Path]]:
    """Each example as an npz, and the listing that the plan would make of them."""
    files, entries = [], []
    for index, feeds in enumerate(examples):
        buffer, arrays = io.BytesIO(), dict(feeds)
        np.savez(buffer, allow_pickle=False, **arrays)
        path = folder / f"{index:05d}.npz"
        path.write_bytes(buffer.getvalue())
        files.append(path)
        entries.append({"name": path.name, "digest": hashlib.sha256(buffer.getvalue()).hexdigest()})
    names = [{"": path.name} for path in files]
    listing = folder / "listing.json"
    listing.write_text(json.dumps({"kind": "npz", "examples": names, "files": entries}))
    return listing, files


def run(model: bytes, feeds: Feeds) -> list[Array]:
    """Outputs by ONNX Runtime without its rewriting; feeds take the dtypes that the model wants."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    proto = onnx.ModelProto.FromString(model)
    kinds = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    fed = {
        name: np.asarray(value, helper.tensor_dtype_to_np_dtype(kinds[name]))
        for name, value in feeds.items()
        if name in kinds
    }
    return [np.asarray(value) for value in session.run(None, fed)]


def sqnr(expected: Array, actual: Array) -> float:
    """Signal to noise in dB; infinite where both are equal."""
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    noise = float(((wide - other) ** 2).sum())
    return float("inf") if noise == 0.0 else float(10 * np.log10((wide**2).sum() / noise))


def assert_faithful(baked: Baked, source: onnx.ModelProto, examples: Sequence[Feeds], decibels: float) -> None:
    """The optimised model equals the source to rounding, the integer one to ``decibels``, over all ``examples``."""
    for index in range(len(source.graph.output)):
        expected = np.stack([run(source.SerializeToString(), feeds)[index] for feeds in examples])
        close = np.stack([baked.run("optimize", feeds)[index] for feeds in examples])
        integer = np.stack([baked.run("quantize", feeds)[index] for feeds in examples])
        assert sqnr(expected, close) > 60, (index, sqnr(expected, close))
        assert sqnr(expected, integer) > decibels, (index, sqnr(expected, integer))
