"""Convolutions by weights of 16 bits, by the real compiler: how large a window it computes with all of their bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npubake.toolchains.qualcomm.adapting import wide_weights
from tests.fixedpoint.builds import float_model, node
from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import emulated
from tests.qualcomm.operator_cases import weights

pytestmark = needs_qnn

QCS9075 = "77"
LAYERS = {
    "8 columns": (node("Conv", "x w", "out"), (8, 8, 1, 8)),
    "9 columns": (node("Conv", "x w", "out"), (8, 8, 1, 9)),
    "9 rows": (node("Conv", "x w", "out", strides=[2, 2]), (8, 8, 9, 9)),
    "9 rows depthwise": (node("Conv", "x w", "out", group=8), (8, 1, 9, 9)),
    "9 rows by dilation": (node("Conv", "x w", "out", dilations=[4, 4], group=8), (8, 1, 3, 3)),
    "transposed": (node("ConvTranspose", "x w", "out"), (8, 8, 9, 9)),
    "transposed, strided": (node("ConvTranspose", "x w", "out", strides=[2, 2]), (8, 8, 9, 9)),
}
RIGHT = {"8 columns", "transposed, strided"}


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_refused_is_what_loses_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once one of these no longer loses any, it need not be refused."""
    layer, shape = LAYERS[name]
    feeds = [{"x": np.random.default_rng(7).uniform(-2, 3, (1, 8, 16, 16)).astype(np.float32)}]
    model: onnx.ModelProto = float_model([layer], {"x": [1, 8, 16, 16]}, {"w": weights(*shape)}, ["out"])
    monkeypatch.setattr(wide_weights, "_MOST", 99)
    agreement = emulated(model, feeds, "a16w16", QCS9075, tmp_path).agreement
    assert agreement > 50 if name in RIGHT else agreement < 45
