"""What the whole road with ``transform`` and ``tune`` owes to any model, whatever is asked of it: held for one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from npubake.errors import BuildError
from npubake.graph.execution import RUNTIME_ERRORS, random_feeds, run_model
from npubake.graph.model_file import load_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages import compile as compiling
from npubake.stages import measure, observe, package, ptq, quantize, transform, tune, verify
from npubake.toolchains.reference.bundle import verify_bundle
from tests.fixedpoint.builds import SETTINGS, Case, session
from tests.kinds.road import Baked, Feeds, bake

_ALL = ["activation_scale", "zero_point", "weight_scale", "rounding"]
_NONE = {"level": "none"}
_GROUPS = {"granularity": "per_group", "group_size": 4}
ASKED: tuple[Mapping[str, Any], ...] = (
    {"lane": "a8w8"},
    {"lane": "a8w8", "tuning": {"level": "best"}},
    {"lane": "a16w8", "tuning": {"level": "best"}},
    {"lane": "fp16_a8w8"},
    {"lane": "w4a16", "weights": _GROUPS},
    {"lane": "a8w8", "weights": {"bits": 4, "granularity": "per_group", "group_size": 2, "symmetric": False}},
    {"lane": "a16w16", "calibration": {"method": "mse"}},
    {"lane": "a8w8", "weights": {"granularity": "per_tensor", "symmetric": False}, "bias_correction": "empirical"},
    {"lane": "a8w8", "calibration": {"method": "entropy", "asymmetric": False}, "tuning": {"max_int16": 1}},
    {"lane": "a8w8", "tuning": _NONE, "hessian": {"act_order": True}, "bias_correction": "empirical"},
    {"lane": "a16w8", "tuning": _NONE, "hessian": {"asymmetric": True}, "search_weight_scale": {"candidates": 4}},
    {"lane": "a8w8", "tuning": {**_NONE, "judge": False}, "mod": {"epochs": 2, "learn": _ALL}},
    {"lane": "fp16_a8w8", "tuning": {"level": "best", "judge": False}, "mod": {"epochs": 2}},
    {"lane": "a8w8", "calibration": {"method": "mean_minmax"}, "equivalent_transformation": True},
    {"lane": "fp16", "tuning": _NONE},
)
_FACTORS = (1.0, 1.0, 0.0, 8.0, 1.0, 0.01)  # an example each: one is empty, one strong, one weak
_MODELS = ("tune.float", "tune.model", "transform.model", "quantize.model", "ptq.model")


def hold_tuned(source: onnx.ModelProto, asked: Mapping[str, Any], folder: Path, *, whole: bool = False) -> str:
    """Raises AssertionError where a stage breaks its contract. Returns what came of it, as ``contracts.hold``.

    whole: measures, compile, verify and package, too.
    """
    feeds = [_scaled(random_feeds(source, seed=seed), factor) for seed, factor in enumerate(_FACTORS)]
    try:
        values = [run_model(source, entry) for entry in feeds]
    except RUNTIME_ERRORS:
        return "does not run"
    if not all(np.isfinite(value).all() for entry in values for value in entry.values()):
        return "not finite"
    try:
        made = _road(source, feeds, asked, folder)
        if whole:
            _released(made, folder)
        return _held(made, feeds[0])
    except BuildError as error:
        refusal = error
    assert refusal.faults
    assert all(fault.what and (fault.where or fault.path or fault.hint) for fault in refusal.faults), refusal
    return f"refused: {refusal.faults[0].what}"


def _scaled(feeds: Feeds, factor: float) -> Feeds:
    return {name: value * np.float32(factor) if value.dtype.kind == "f" else value for name, value in feeds.items()}


def _road(source: onnx.ModelProto, feeds: Sequence[Feeds], asked: Mapping[str, Any], folder: Path) -> Baked:
    plain = {name: value for name, value in asked.items() if name in ("lane", "calibration", "weights")}
    baked = bake(source, feeds, folder, until="calibrate", **{"calibration": {}, **plain})
    made = dict(baked.files)
    bits = 16 if asked["lane"] in ("a16w8", "a16w16", "w4a16") else 8
    float_inputs = {"model": "optimize.model", "graph": "optimize.graph", "samples": "samples.samples"}
    stated = {**float_inputs, "statistics": "observe.statistics"}
    tuned = {"graph": "tune.graph", "parameters": "tune.parameters"}
    again = {"model": "transform.model", "graph": "transform.graph", "samples": "samples.samples"}
    both = {
        "parameters": "calibrate.parameters",
        "transformed_model": "transform.model",
        "transformed_graph": "transform.graph",
        "transformed_statistics": "observe again.statistics",
    }
    _run(transform, "transform", {"activation_bits": bits, "bias_absorption": True}, stated, made, folder)
    _run(observe, "observe again", {}, again, made, folder)
    _run(tune, "tune", asked, {**stated, **both}, made, folder)
    _run(ptq, "ptq", {}, {"model": "tune.model", **tuned}, made, folder)
    _run(quantize, "quantize", {"tail": BOARD["tail"]}, {"model": "tune.float", **tuned}, made, folder)
    return Baked(files=made)


def _released(baked: Baked, folder: Path) -> None:
    made = dict(baked.files)
    for stage in ("tune", "quantize"):
        pair = {"reference": "optimize.model", "candidate": f"{stage}.model", "candidate_record": f"{stage}.record"}
        boundary = {"boundary": "calibrated" if stage == "tune" else "quantized"}
        _run(measure, f"measure {stage}", boundary, {**pair, "samples": "samples.samples"}, made, folder)
    quantised = {"model": "quantize.model", "record": "quantize.record"}
    _run(compiling, "compile", {"platform": BOARD}, {**quantised, "removed": "quantize.removed"}, made, folder)
    checked = {**quantised, "deployable": "compile.deployable", "samples": "samples.samples"}
    _run(verify, "verify", {"count": 2}, checked, made, folder)
    released = {"verified": "verify.record", "outputs": "verify.outputs", "archive": "samples.archive"}
    files = {"deployable": "compile.deployable", "contract": "compile.contract", **released}
    _run(package, "package", {}, files, made, folder)
    for stage in ("tune", "quantize"):
        figures = json.loads(made[f"measure {stage}.figures"].read_text())
        assert figures["outputs"].keys() == set(GraphSummary.load(made["optimize.graph"]).outputs), figures
        assert all(entry["cosine"] is not None for entry in figures["outputs"].values()), figures
    verify_bundle(made["package.bundle"])


BOARD: Mapping[str, Any] = {
    "name": "board",
    "tail": "int32",
    "nv12_stride_bytes": 32,
    "tensor_unit_bytes": 64,
}


MAKES: Mapping[str, tuple[str, ...]] = {
    "transform": ("model", "graph", "record"),
    "observe again": ("statistics",),
    "tune": ("float", "graph", "parameters", "model", "record"),
    "ptq": ("model", "record"),
    "quantize": ("model", "removed", "record"),
    "measure tune": ("figures",),
    "measure quantize": ("figures",),
    "compile": ("deployable", "contract"),
    "verify": ("record", "outputs"),
    "package": ("bundle", "deployable", "contract"),
}


def _run(
    stage: ModuleType,
    name: str,
    params: Mapping[str, Any],
    reads: Mapping[str, str],
    made: dict[str, Path],
    folder: Path,
) -> None:
    outputs = {port: folder / f"{name}.{port}" for port in MAKES[name]}
    inputs = {port: (made[key],) for port, key in reads.items()}
    stage.run(Job(params=params, inputs=inputs, outputs=outputs, threads=2))
    made |= {f"{name}.{port}": path for port, path in outputs.items()}


def _held(baked: Baked, feeds: Feeds) -> str:
    for name in _MODELS:
        model = load_model(baked.files[name])
        onnx.checker.check_model(model, full_check=True)
        found = run_model(model, dict(feeds))
        assert all(np.isfinite(value).all() for value in found.values() if value.dtype.kind == "f"), name
    parameters = QuantizationParameters.load(baked.files["tune.parameters"])
    parameters.require_graph(baked.files["tune.graph"])
    record = json.loads(baked.files["tune.record"].read_text())
    assert set(record["tuning"]) >= {"level", "judged_on", "trials", "kept", "score"}
    case = Case(
        model=load_model(baked.files["tune.float"]),
        summary=GraphSummary.load(baked.files["tune.graph"]),
        parameters=parameters,
    )
    floats = any(entry.precision in ("float16", "float32") for entry in parameters.groups.values())
    if floats or json.loads(baked.files["quantize.record"].read_text())["float_nodes"]:
        return "float"
    made, expected = load_model(baked.files["quantize.model"]), case.expected(feeds)
    for setting in (SETTINGS[0], SETTINGS[-1]):
        answers = session(made, *setting).run(None, dict(feeds))
        for name, value in zip(case.summary.outputs, answers, strict=True):
            np.testing.assert_array_equal(value, expected[name], err_msg=f"quantize: {name}")
    return "exact"
