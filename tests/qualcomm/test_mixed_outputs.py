"""Layers of planes that read 16 bits and leave in 8, at an output of the graph: the real compiler takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npubake.toolchains.qualcomm.adapting.adapt import adapt
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest, Sources
from tests.fixedpoint.builds import calibrated, float_model, node, statistics
from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import compiled, decibels, in_emulator, runs
from tests.qualcomm.operator_cases import weights

pytestmark = needs_qnn

LAST = {
    "Conv": node("Conv", "c v", "out", pads=[1] * 4),
    "ConvTranspose": node("ConvTranspose", "c v", "out", strides=[2, 2]),
    "AveragePool": node("AveragePool", "c", "out", kernel_shape=[2, 2]),
}


@pytest.mark.parametrize("soc", ["77", "93"])
@pytest.mark.parametrize("name", LAST)
def test_a_last_layer_of_two_widths(name: str, soc: str, tmp_path: Path) -> None:
    layers: list[onnx.NodeProto] = [node("Conv", "x w", "c", pads=[1] * 4), LAST[name]]
    held = {"w": weights(8, 8, 3, 3), **({"v": weights(8, 8, 3, 3)} if len(LAST[name].input) > 1 else {})}
    model = float_model(layers, {"x": [1, 8, 12, 12]}, held, ["out"])
    feeds = [{"x": np.random.default_rng(7).uniform(-2, 3, (1, 8, 12, 12)).astype(np.float32)}]
    case = calibrated(model, feeds, "a8w8", int16=("c/Conv",), quantisers="everywhere")
    sources = Sources(parameters=case.parameters, statistics=statistics(model, case.summary, feeds))
    made = adapt(model, case.summary, sources, AdaptRequest(lane="a8w8", oldest=soc == "93"))
    assert made.record["outputs"]["out"]["dtype"] == "uint8"
    assert compiled(made.compilable, soc, tmp_path) == ""
    assert decibels(runs(made.model, feeds, "out"), in_emulator(made, feeds, "out", tmp_path)) > 35
