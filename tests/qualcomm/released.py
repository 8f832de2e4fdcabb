"""The digits classifier from calibration to its bundle, compiled by the real compiler; made once for all tests."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from npubake.stages import adapt, calibrate, compile_htp, emulate, package_htp, verify_htp
from tests.toolchains.digits import GRAY, PICTURE, Road, calibrated

SOCS = {
    "77": {"name": "qcs9075", "soc_model": "77", "march": "v73", "vtcm_bytes": 8388608},
    "82": {"name": "qcs8275", "soc_model": "82", "march": "v75", "vtcm_bytes": 8388608},
}

COMPILED = ("wrapper", "binary", "contract", "metadata", "trace", "log")


def temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="npubake-released-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def adapted() -> Road:
    """calibrate (a8w8, quantisers everywhere) and adapt, fed grey pixels."""
    road = calibrated().branch(temporary())
    graph = {"model": "optimize.model", "graph": "optimize.graph"}
    params = {"lane": "a8w8", "quantisers": "everywhere", "input_ranges": {"image": [0.0, 1.0]}}
    observed = {**graph, "statistics": "observe.statistics"}
    road = road.run(calibrate, observed, ("model", "parameters", "record"), params)
    given = {**observed, "parameters": "calibrate.parameters", "decisions": "calibrate.record"}
    asked = {"lane": "a8w8", "io": "quantized", "runtime_input": GRAY}
    return road.run(adapt, given, ("model", "compilable", "record"), asked)


@cache
def compiled(soc: str = "77") -> Road:
    road = adapted().branch(temporary())
    params = {"platform": SOCS[soc], "io": "quantized", "preset": PICTURE}
    return road.run(compile_htp, {"compilable": "adapt.compilable", "record": "adapt.record"}, COMPILED, params)


def emulated(road: Road, **params: Any) -> Road:
    inputs = {port: f"compile_htp.{port}" for port in ("wrapper", "binary", "contract")}
    models = {"record": "adapt.record", "reference": "optimize.model", "quantised": "adapt.model", "samples": "samples"}
    asked = {"boundary": "compiled", "count": 5, **params}
    return road.run(emulate, {**inputs, **models}, ("figures", "outputs"), asked)


def verified(road: Road) -> Road:
    inputs = {port: f"compile_htp.{port}" for port in ("wrapper", "binary", "contract", "metadata")}
    given = {**inputs, "emulated": "emulate.outputs", "figures": "emulate.figures"}
    return road.run(verify_htp, given, ("record", "outputs"), {})


def packaged(road: Road) -> Road:
    inputs = {port: f"compile_htp.{port}" for port in ("wrapper", "binary", "contract")}
    parts = {**inputs, "archive": "samples", "verified": "verify_htp.record", "outputs": "verify_htp.outputs"}
    return road.run(package_htp, parts, ("bundle", "wrapper", "binary", "contract"), {})


@cache
def released(soc: str = "77") -> Road:
    """Everything up to the bundle."""
    return packaged(verified(emulated(compiled(soc))))
