"""Weights of 4 bits with one scale for a whole tensor, by the real compiler: adapt writes it for each channel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from npubake.toolchains.qualcomm.adapting.adapt import adapt
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest, Sources
from tests.fixedpoint.builds import calibrated, node, statistics
from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import compiled, decibels, in_emulator, runs
from tests.qualcomm.operator_cases import ROWS, OperatorCase, case, weights

pytestmark = needs_qnn

CASES = (
    case("Conv", node("Conv", "x w b", "out", pads=[1] * 4), constants={"w": weights(16, 8, 3, 3), "b": weights(16)}),
    case("depthwise", node("Conv", "x w", "out", group=8), constants={"w": weights(8, 1, 3, 3)}),
    case("MatMul", node("MatMul", "x w", "out"), constants={"w": weights(24, 32)}, shape=ROWS),
    case(
        "Gemm",
        node("Gemm", "x w b", "out", transB=1),
        constants={"w": weights(32, 24), "b": weights(32)},
        shape=(4, 24),
    ),
)


@pytest.mark.parametrize(("lane", "least"), [("a8w8", 33.0), ("w4a16", 45.0)])
@pytest.mark.parametrize("asked", CASES, ids=lambda each: each.name)
def test_one_scale_of_4_bits_is_computed_as_the_qdq_model_says(
    asked: OperatorCase, lane: str, least: float, tmp_path: Path
) -> None:
    model, feeds = asked.model(), asked.feeds(3)
    held = {"bits": 4, "granularity": "per_tensor", "symmetric": True}
    found = calibrated(model, feeds, lane, quantisers="everywhere", weights=held)
    seen = statistics(model, found.summary, feeds)
    made = adapt(model, found.summary, Sources(parameters=found.parameters, statistics=seen), AdaptRequest(lane=lane))
    stored = {each.name: each for each in made.model.graph.initializer}
    assert len(np.unique(numpy_helper.to_array(stored["w/scale"]))) == 1
    assert compiled(made.compilable, "77", tmp_path) == ""
    assert decibels(runs(made.model, feeds, "out"), in_emulator(made, feeds, "out", tmp_path)) > least
