"""graph.transforms.absorb_bias: what moves, that the function stays, and what is declined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from npubake.graph.execution import random_feeds, run_model
from npubake.graph.transforms.absorb_bias import absorb_bias
from npubake.graph.transforms.ranges import ChannelRange
from tests.graph.transforms.observing import SEEDS, observed
from tests.graph.writing import Array, assert_provenance, build, floats, integers, normal

IMAGE = "float[1,3,6,6] x => float[1,5,6,6] y"
CONSTANTS = {
    "w1": normal(4, 3, 1, 1, scale=0.1), "b1": floats(9, 0, 7, 8), "w2": normal(5, 4, 1, 1), "b2": normal(5),
}  # fmt: skip


def _ranges(model: onnx.ModelProto, **low: Array) -> dict[str, ChannelRange]:
    """What was observed, with other minima and narrow distributions where they are given."""
    found = observed(model)
    for name, values in low.items():
        mean = values.astype(np.float64) + 1.0
        found[name] = replace(found[name], low=values, mean=mean, square=mean * mean)
    return found


def test_the_sure_part_of_each_channel_moves_into_the_next_bias() -> None:
    model = build(IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", **CONSTANTS)
    before = _ranges(model)
    made = absorb_bias(model, before)
    (entry,) = made.absorbed
    assert (entry.writer, entry.readers, entry.tensor, entry.channels) == ("Conv_t", ("Conv_y",), "r", 3)
    for seed in SEEDS:
        feeds = random_feeds(model, seed)
        np.testing.assert_allclose(
            run_model(made.model, feeds)["y"], run_model(model, feeds)["y"], rtol=1e-5, atol=1e-5
        )
    assert_provenance(model, made.model, made.provenance, tolerance=1e-6)
    after = observed(made.model)["r/absorbed"]
    assert after.high.max() < 0.5 * before["r"].high.max()
    assert (after.low >= -1e-6).all()
    assert entry.most == pytest.approx(float((before["r"].high - after.high).max()), rel=1e-5)


def test_three_deviations_bound_what_moves() -> None:
    """Section 4.1.3 of the paper: c = mean - 3 deviations, in exact numbers."""
    model = build(IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", **CONSTANTS)
    wide = ChannelRange(
        axis=1, low=floats(4, 4, 4, 4), high=floats(9, 8, 8, 8), mean=np.array([8.0, 5.0, 6.0, 2.0]),
        square=np.array([8.0**2 + 1, 5.0**2 + 1, 6.0**2 + 4, 2.0**2 + 1]),
    )  # fmt: skip
    made = absorb_bias(model, {"r": wide})
    bias = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in made.model.graph.initializer}
    np.testing.assert_array_equal(bias["Conv_t/bias/absorbed"], CONSTANTS["b1"] - floats(4, 2, 0, 0))


def test_gemm_readers_and_a_missing_bias() -> None:
    model = build(
        "float[1,3,2,2] x => float[1,5] y",
        "t = Conv(x, w1, b1) r = Relu(t) p = Conv(r, w2) q = Flatten(p) y = Gemm(q, w, b)",
        **{**CONSTANTS, "w": normal(20, 5), "b": normal(5)},
    )  # fmt: skip
    made = absorb_bias(model, _ranges(model))
    assert made.absorbed[0].readers == ("Conv_p",)
    feeds = random_feeds(model, 3)
    np.testing.assert_allclose(run_model(made.model, feeds)["y"], run_model(model, feeds)["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("signature", "body", "why"),
    [
        (IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv<pads=[1,1,1,1]>(r, w3, b2)", "pads"),
        (IMAGE, 't = Conv(x, w1, b1) r = Relu(t) y = Conv<auto_pad="SAME_UPPER">(r, w3, b2)', "pads"),
        ("float[1,3,6,6] x => float[1,4,1,1] y", "t = Conv(x, w1, b1) r = Relu(t) y = GlobalMaxPool(r)", "MaxPool_y"),
        (IMAGE + ", float[1,4,6,6] r", "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", "leaves"),
        (IMAGE, "t = Conv(x, w1, b1) r = Relu(t) a = Conv(r, w2, b2) b = Conv(t, w2, b2) y = Add(a, b)", "elsewhere"),
    ],
)  # fmt: skip
def test_what_is_declined(signature: str, body: str, why: str) -> None:
    constants = {**CONSTANTS, "w3": normal(5, 4, 3, 3), "one": integers(1)}
    model = build(signature, body, **constants)
    made = absorb_bias(model, _ranges(model))
    assert not made.absorbed
    (entry,) = made.declined
    assert why in entry.why


def test_excluded_and_unknown_tensors_stay() -> None:
    model = build(IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", **CONSTANTS)
    assert not absorb_bias(model, {}).absorbed
    made = absorb_bias(model, _ranges(model), excluded={"Conv_y"})
    assert (made.absorbed, made.declined[0].why) == ((), "Conv_y: excluded")


@pytest.mark.parametrize(("high", "absorbed"), [(20.5, 0), (19.5, 1)])
def test_less_than_a_tenth_of_the_range_is_left_where_it_is(high: float, absorbed: int) -> None:
    """Two units of 20.5 are less than a tenth, of 19.5 more."""
    model = build(IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", **CONSTANTS)
    mean = np.full(4, 8.0)
    entry = ChannelRange(axis=1, low=floats(2, 2, 2, 2), high=np.full(4, high), mean=mean, square=mean * mean + 1.0)
    assert len(absorb_bias(model, {"r": entry}).absorbed) == absorbed


def test_a_tensor_whose_largest_channel_keeps_its_size_stays() -> None:
    constants = {
        **CONSTANTS,
        "b1": floats(0, 0, 2, 1),
        "w1": CONSTANTS["w1"] * floats(200, 1, 1, 1).reshape(4, 1, 1, 1),
    }
    model = build(IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", **constants)
    assert not absorb_bias(model, _ranges(model)).absorbed
