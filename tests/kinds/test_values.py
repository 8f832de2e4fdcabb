"""Kinds of values that ruin a quantiser: dead channels, tiny weights, mask constants, two scales in one tensor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npubake.quant.parameters import QuantizationParameters
from tests.kinds.graphs import around, conv, model, node, pictures, two_convolutions, value, weights
from tests.kinds.road import Baked, assert_faithful, bake, run, sqnr


def _record(baked: Baked) -> dict[str, object]:
    return dict(json.loads(baked.files["calibrate.record"].read_text()))


def test_a_tensor_that_is_zero_throughout_is_reported_and_harmless(tmp_path: Path) -> None:
    source = two_convolutions()
    source.graph.initializer[0].raw_data = bytes(4 * 4 * 27)
    source.graph.initializer[1].raw_data = np.full(4, -1, np.float32).tobytes()
    baked = bake(source, pictures(), tmp_path)
    assert _record(baked)["dead_tensors"] == ["u"]
    parameters = QuantizationParameters.load(baked.files["calibrate.parameters"])
    assert all(np.isfinite(entry.scale) and entry.scale > 0 for entry in parameters.tensors.values())
    assert_faithful(baked, source, pictures(), 40)


def test_a_dead_channel_does_not_disturb_the_others(tmp_path: Path) -> None:
    source = two_convolutions()
    kernel = weights(4, 3, 3, 3)
    kernel[2] = 0
    source.graph.initializer[0].raw_data = kernel.tobytes()
    source.graph.initializer[1].raw_data = np.array([0.1, -0.2, 0, 0.3], np.float32).tobytes()
    baked = bake(source, pictures(), tmp_path)
    assert_faithful(baked, source, pictures(), 30)
    found = QuantizationParameters.load(baked.files["calibrate.parameters"]).weights
    assert all(np.isfinite(scale) and scale > 0 for entry in found.values() for scale in entry.scales)


def test_a_bias_far_above_its_weights_is_kept(tmp_path: Path) -> None:
    """input scale x weight scale is so small that int32 could not hold the bias: the weight scale is raised."""
    source = model(
        [conv("x", "y")],
        {"w": weights(2, 3, 3, 3, scale=1e-7), "b": np.array([5, -4.5], np.float32)},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 2, 8, 8))],
    )
    assert_faithful(bake(source, pictures(), tmp_path), source, pictures(), 45)


def test_the_largest_float_as_a_mask_costs_no_resolution(tmp_path: Path) -> None:
    hidden = np.array([[[True] * 5 + [False] * 2]])
    source = model(
        [
            node("MatMul", "x wq", "q"),
            node("Transpose", "x", "xt", perm=[0, 2, 1]),
            node("MatMul", "q xt", "s"),
            node("Where", "mask zero lowest", "m"),
            node("Add", "s m", "sm"),
            node("Softmax", "sm", "p", axis=-1),
            node("MatMul", "p x", "y"),
        ],
        {
            "wq": weights(8, 8),
            "mask": hidden,
            "zero": np.array(0, np.float32),
            "lowest": np.array(np.finfo(np.float32).min, np.float32),
        },
        [value("x", (1, 7, 8))],
        [value("y", (1, 7, 8))],
    )
    examples = pictures(8, (1, 7, 8))
    for lane, decibels in (("a8w8", 28), ("a16w8", 40)):
        (tmp_path / lane).mkdir()
        assert_faithful(bake(source, examples, tmp_path / lane, lane=lane), source, examples, decibels)


def test_boxes_beside_scores_keep_the_scores(tmp_path: Path) -> None:
    """Boxes up to hundreds and scores below one share no scale that serves both."""
    source = model(
        [
            conv("x", "bx", "wb", "bb"),
            node("Mul", "bx k", "boxes"),
            conv("x", "s", "ws", "bs"),
            node("Sigmoid", "s", "scores"),
            node("Concat", "boxes scores", "y", axis=1),
        ],
        {
            "wb": weights(4, 3, 3, 3),
            "bb": weights(4),
            "ws": weights(2, 3, 3, 3, scale=0.2),
            "bs": np.full(2, -4, np.float32),
            "k": np.array(300, np.float32),
        },
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 6, 8, 8))],
    )
    examples = pictures(8)
    baked = bake(source, examples, tmp_path)
    expected = np.stack([run(source.SerializeToString(), feeds)[0] for feeds in examples])
    found = np.stack([baked.run("quantize", feeds)[0] for feeds in examples])
    assert sqnr(expected[:, :, :4], found[:, :, :4]) > 30
    assert sqnr(expected[:, :, 4:], found[:, :, 4:]) > 20


def test_a_clip_of_which_one_end_is_open_lets_nothing_through_below_the_other(tmp_path: Path) -> None:
    """Symmetric 8-bit codes reach below zero: the clip must not be taken for implied."""
    source = model(
        [conv("x", "t"), node("Clip", "t zero -", "y")],
        {"w": weights(4, 3, 3, 3), "b": weights(4), "zero": np.array(0, np.float32)},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 4, 8, 8))],
    )
    for asymmetric in (True, False):
        folder = tmp_path / str(asymmetric)
        folder.mkdir()
        baked = bake(source, pictures(), folder, calibration={"method": "minmax", "asymmetric": asymmetric})
        assert min(float(baked.run("quantize", feeds)[0].min()) for feeds in pictures()) == 0.0
        assert_faithful(baked, source, pictures(), 28)


def test_a_clip_whose_lower_limit_is_the_higher_gives_the_upper_one(tmp_path: Path) -> None:
    """ONNX applies the upper limit last."""
    ends = {"least": np.array(1, np.float32), "most": np.array(-1, np.float32)}
    source = around([node("Clip", "t least most", "u")], ends)
    baked = bake(source, pictures(), tmp_path)
    assert_faithful(baked, source, pictures(), 35)


@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
def test_a_logarithm_of_hardly_anything_ends_where_the_data_did(lane: str, tmp_path: Path) -> None:
    """1e-8 has the code of zero: its logarithm is the least that was seen, not the end of a range twice as wide."""
    source = model(
        [conv("x", "c"), node("Relu", "c", "r"), node("Add", "r eps", "s"), node("Log", "s", "y")],
        {"w": weights(4, 3, 3, 3), "b": np.zeros(4, np.float32), "eps": np.array(1e-8, np.float32)},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 4, 8, 8))],
    )
    assert_faithful(bake(source, pictures(), tmp_path, lane=lane), source, pictures(), 20)
