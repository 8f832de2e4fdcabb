"""How the HTP adds up a bias beside 16-bit activations, by the real compiler: the reason for adapting/biases.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from npubake.toolchains.qualcomm.adapting import writing
from npubake.toolchains.qualcomm.adapting.request import Adapted
from tests.fixedpoint.builds import node
from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import adapted, compiled, in_emulator, runs
from tests.qualcomm.operator_cases import OperatorCase, case, weights

pytestmark = needs_qnn

BIAS = np.random.default_rng(6).normal(0, 1, 32).astype(np.float32)
CASES = (
    case("depthwise", node("Conv", "x w b", "out", group=32), constants={"w": weights(32, 1, 3, 3), "b": BIAS}),
    case("Conv", node("Conv", "x w b", "out"), constants={"w": weights(32, 16, 1, 1), "b": BIAS}),
    case("Gemm", node("Gemm", "x w b", "out", transB=1), constants={"w": weights(32, 24), "b": BIAS}),
)
SHAPES = {"depthwise": (1, 32, 24, 24), "Conv": (1, 16, 24, 24), "Gemm": (512, 24)}


def means(asked: OperatorCase, lane: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Of each channel: emulator minus QDQ model in steps of the sum, and the bias that was asked for."""
    asked = case(asked.name, *asked.nodes, constants=asked.constants, shape=SHAPES[asked.name])
    model, feeds = asked.model(), asked.feeds(2)
    made: Adapted = adapted(model, feeds, lane)
    folder.mkdir()
    assert compiled(made.compilable, "77", folder) == ""
    apart = in_emulator(made, feeds, "out", folder).astype(np.float64) - runs(made.model, feeds, "out")
    held = {each.name: each for each in made.compilable.graph.initializer}
    steps, codes = (numpy_helper.to_array(held[f"b/{part}"]) for part in ("scale", "quantized"))
    return np.moveaxis(apart, 2, -1).reshape(-1, len(BIAS)).mean(axis=0) / steps, codes.astype(np.int64)


@pytest.mark.parametrize("lane", ["a16w8", "w4a16"])
@pytest.mark.parametrize("asked", CASES, ids=lambda each: each.name)
def test_sums_go_down_and_biases_towards_zero_in_steps_of_256(
    asked: OperatorCase, lane: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended, _ = means(asked, lane, tmp_path / "mended")
    monkeypatch.setattr(writing, "summed_bias", lambda codes, **_: codes)
    plain, codes = means(asked, lane, tmp_path / "plain")
    lost = np.trunc(codes / 256) * 256 - codes - 128
    assert np.abs(plain - lost).mean() < 50
    assert np.abs(mended).mean() < 50 < 100 < np.abs(plain).mean()
