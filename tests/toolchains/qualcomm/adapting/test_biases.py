"""Biases beside 16-bit activations against the HTP's sum, written here: products down, biases cut, to steps of 256."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.toolchains.qualcomm.adapting.biases import summed_bias
from tests.fixedpoint.builds import float_model, node
from tests.qualcomm.emulated import adapted

RANDOM = np.random.default_rng(21)


def htp_sum(products: NDArray[np.int64], bias: NDArray[np.int32]) -> NDArray[np.float64]:
    """As tests/qualcomm/test_biases.py finds it."""
    found: NDArray[np.float64] = (np.floor(products / 256) + np.trunc(bias / 256)) * 256
    return found


def stored_bias(model: onnx.ModelProto) -> NDArray[np.int64]:
    (found,) = (numpy_helper.to_array(each) for each in model.graph.initializer if each.name == "b/quantized")
    return found.astype(np.int64)


@pytest.mark.parametrize("value", [-100_000, -129, -128, -1, 0, 1, 127, 128, 255, 56_046, 2**31 - 2, -(2**31) + 2])
def test_the_mean_of_sums_is_what_the_measured_model_says(value: int) -> None:
    codes = np.array([value], np.int32)
    products = RANDOM.integers(-(10**6), 10**6, 40_000)
    summed = htp_sum(products, summed_bias(codes, computed=False))
    said = products + summed_bias(codes, computed=True).astype(np.int64)
    assert abs((summed - said).mean()) < 2.0
    assert abs((summed - products - value).mean()) < 130 + 512 * (abs(value) > 2**30)


@pytest.mark.parametrize(("lane", "changed"), [("a8w8", False), ("a16w8", True), ("w4a16", True), ("a16w16", False)])
def test_it_is_done_beside_wide_activations_and_narrow_weights(lane: str, changed: bool) -> None:
    held = {"w": RANDOM.standard_normal((6, 4, 1, 1)).astype(np.float32), "b": np.linspace(-1, 1, 6, dtype=np.float32)}
    model = float_model([node("Conv", "x w b", "out", kernel_shape=[1, 1])], {"x": [1, 4, 3, 3]}, held, ["out"])
    made = adapted(model, [{"x": RANDOM.uniform(-1, 1, (1, 4, 3, 3)).astype(np.float32)}], lane)
    asked, computed = stored_bias(made.compilable), stored_bias(made.model)
    assert bool(np.any(asked != computed)) == changed
    if changed:
        assert not np.any(asked % 128)
        np.testing.assert_array_equal(np.trunc(asked / 256) * 256 - 128, computed)
