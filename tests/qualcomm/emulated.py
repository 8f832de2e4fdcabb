"""Adapted models through the real compiler and its emulator, all in this process: many small ones a second.

Delivered bytes are made in a process of their own (``toolchains.qualcomm.htp.compiling``); here only values count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.summarising import summarise
from npubake.toolchains.qualcomm.adapting.adapt import adapt
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest, Sources
from tests.fixedpoint.builds import Level, calibrated, session, statistics

Array = NDArray[Any]
Feeds = Sequence[Mapping[str, Array]]
_LIMITS = {"uint8": 255, "uint16": 65535}


@dataclass(frozen=True, kw_only=True)
class Emulated:
    """Signal to noise in dB, infinite where equal: what quantisation costs, and how the emulator agrees with the QDQ
    model on the CPU, both over all feeds, of the first output. refused: what the compiler said, '' where it compiled.
    """

    quantised: float = 0.0
    agreement: float = 0.0
    refused: str = ""


def adapted(model: onnx.ModelProto, feeds: Feeds, lane: str, request: AdaptRequest | None = None) -> Adapted:
    """``model`` adapted with ranges seen on ``feeds``."""
    asked = request or AdaptRequest(lane=lane, io="float" if lane == "fp16" else "quantized")
    if lane == "fp16":
        return adapt(model, summarise(model, ()), Sources(), asked)
    case = calibrated(model, feeds, lane, quantisers="everywhere")
    seen = statistics(model, case.summary, feeds)
    return adapt(model, case.summary, Sources(parameters=case.parameters, statistics=seen), asked)


def emulated(model: onnx.ModelProto, feeds: Feeds, lane: str, soc: str, folder: Path) -> Emulated:
    """Adapt, compile strictly for ``soc`` and run in the emulator. folder: empty, for the compiled files."""
    oldest = soc == "93"
    request = AdaptRequest(lane=lane, io="float" if lane == "fp16" else "quantized", oldest=oldest)
    made = adapted(model, feeds, lane, request)
    refused = compiled(made.compilable, soc, folder)
    if refused:
        return Emulated(refused=refused)
    name = model.graph.output[0].name
    floats = runs(model, feeds, name)
    on_cpu = runs(made.model, feeds, name)
    return Emulated(
        quantised=decibels(floats, on_cpu), agreement=decibels(on_cpu, in_emulator(made, feeds, name, folder))
    )


def compiled(model: onnx.ModelProto, soc: str, folder: Path, **provider: str) -> str:
    """Compile into ``folder``; what was raised, '' for success. provider: options of the QNN provider."""
    from onnxruntime.capi import onnxruntime_pybind11_state as refusals

    from npubake.toolchains.qualcomm.htp.session import open_session

    entries = {
        "ep.context_enable": "1",
        "ep.context_file_path": str(folder / "model_ctx.onnx"),
        "ep.context_embed_mode": "0",
        "session.disable_cpu_ep_fallback": "1",
    }
    try:
        open_session(model.SerializeToString(), provider={"soc_model": soc, **provider}, entries=entries)
    except (refusals.Fail, refusals.EPFail, refusals.InvalidGraph, refusals.RuntimeException) as error:
        return str(error)
    return ""


def in_emulator(made: Adapted, feeds: Feeds, name: str, folder: Path) -> Array:
    """The output ``name`` in real units, over all feeds."""
    runner = emulator(folder)
    held = made.record["outputs"][name]
    found = [
        runner.run([name], {key: encoded(made.record, key, value) for key, value in feed.items()})[0] for feed in feeds
    ]
    values = np.stack(found)
    if held["scale"] is None:
        return values
    real: Array = (values.astype(np.float32) - held["zero_point"]) * np.float32(held["scale"])
    return real


def emulator(folder: Path) -> Any:
    """A session of the compiled files in ``folder``."""
    from npubake.toolchains.qualcomm.htp.session import open_emulator

    here = Path.cwd()
    os.chdir(folder)  # the wrapper names the binary beside it
    try:
        return open_emulator("model_ctx.onnx")
    finally:
        os.chdir(here)


def encoded(record: Mapping[str, Any], name: str, value: Array) -> Array:
    """Codes of an input, as ONNX's QuantizeLinear makes them."""
    held = record["inputs"][name]
    if held["scale"] is None:
        return value
    codes: Array = np.rint(value / np.float32(held["scale"])) + held["zero_point"]
    return np.clip(codes, 0, _LIMITS[held["dtype"]]).astype(held["dtype"])


def runs(model: onnx.ModelProto, feeds: Feeds, name: str) -> Array:
    """The output ``name`` of a model on the CPU, over all feeds, without any optimisation."""
    runner = session(model, Level.ORT_DISABLE_ALL)
    return np.stack([runner.run([name], dict(feed))[0] for feed in feeds])


def decibels(reference: Array, other: Array) -> float:
    wide = reference.astype(np.float64)
    noise = ((wide - other) ** 2).sum()
    return float(10 * np.log10((wide**2).sum() / noise)) if noise else float("inf")
