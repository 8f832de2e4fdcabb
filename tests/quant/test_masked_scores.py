"""quant: scores that a mask of the model's inputs hides take no part of the range; everything else stays in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.calibration.statistics import ChannelStatistics
from npubake.quant.assign import Assignment, Subject, assign
from npubake.quant.masked_scores import lowest_score, reach_below
from npubake.quant.operands import ModelFacts
from npubake.quant.request import parse_request
from tests.quant.graphs import all_values, counted, observed, parsed

ATTENTION = """
t (float[1,6,8] x, float[1,1,6] mask) => (float[1,6,8] y%s) {
  q = MatMul(x, w)
  k = Transpose<perm = [0,2,1]>(x)
  s = MatMul(q, k)
  m = Add(s, mask)
  p = Softmax<axis = -1>(m)
  y = MatMul(p, x)
}
"""


def attention(hidden: float, outputs: str = "") -> tuple[Subject, NDArray[np.float32]]:
    """One attention whose last two positions a mask of ``hidden`` hides, and its masked scores."""
    generator = np.random.default_rng(2)
    weights = {"w": (generator.normal(size=(8, 8)) * 0.3).astype(np.float32)}
    model, summary = parsed(ATTENTION % outputs, weights)
    mask = np.array([[[0, 0, 0, 0, hidden, hidden]]], np.float32)
    examples = [{"x": generator.normal(size=(1, 6, 8)).astype(np.float32), "mask": mask} for _ in range(4)]
    item = Subject(
        summary=summary,
        graph_digest="d" * 64,
        facts=ModelFacts(initializers=weights, attributes={}),
        statistics=observed(model, summary, examples),
    )
    return item, np.concatenate([all_values(model, feeds)["m"] for feeds in examples])


def made(item: Subject, lane: str) -> Assignment:
    return assign(item, parse_request({"lane": lane}), [])


@pytest.mark.parametrize(("lane", "levels"), [("a8w8", 255.0), ("a16w8", 32767.0)])
@pytest.mark.parametrize("hidden", [-128.0, -1e4, -65504.0, -1e9])
def test_a_mask_costs_the_scores_no_step(lane: str, levels: float, hidden: float) -> None:
    item, values = attention(hidden)
    assignment = made(item, lane)
    form = assignment.parameters.tensors["m"]
    kept = values[..., :4].astype(np.float64)
    assert form.low <= kept.min()
    assert form.low >= kept.min() - 17.0
    assert form.high >= kept.max()
    assert "m" in assignment.record.cut_ranges
    clipped = np.maximum(values.astype(np.float64), form.low)
    shares = [np.exp(each) / np.exp(each).sum(axis=-1, keepdims=True) for each in (clipped, values.astype(np.float64))]
    assert np.abs(shares[0] - shares[1]).max() <= 0.51 / levels  # no code of the Softmax changes


@pytest.mark.parametrize("hidden", [-1e4, float(np.finfo(np.float32).min)])
def test_a_mask_reaches_no_farther_than_its_sums_are_told_apart(hidden: float) -> None:
    """What lies below gives the same sum after clamping, and one step of 1e4 / 255 would drown the scores."""
    item, _ = attention(hidden)
    forms = made(item, "a8w8").parameters.tensors
    assert forms["mask"].low <= forms["m"].low - forms["s"].high
    assert forms["mask"].low >= forms["m"].low - forms["s"].high - 1.0
    declared = {"lane": "a8w8", "input_ranges": {"mask": [-1e4, 0.0]}}
    if hidden == -1e4:
        assert assign(item, parse_request(declared), []).parameters.tensors["mask"].low <= -1e4


@pytest.mark.parametrize("outputs", [", float[1,6,6] m"])
def test_an_output_of_the_model_is_not_cut(outputs: str) -> None:
    item, values = attention(-1e4, outputs)
    assignment = made(item, "a16w8")
    assert assignment.parameters.tensors["m"].low <= values.min()
    assert "m" not in assignment.record.cut_ranges


def test_a_lower_end_that_is_no_mask_stays() -> None:
    item, values = attention(-100.0)
    assert made(item, "a16w8").parameters.tensors["m"].low <= values.min()


@pytest.mark.parametrize(
    ("values", "lowest"),
    [
        ([-1e4, -9990.0, -3.0, 5.0], -3.0),
        ([-1e4, -3.0, 0.0, 20000.0], None),  # the values reach farther than the mask lies below them
        ([-1e4, -1e4], None),
        ([-999.0, 1.0], None),
        ([-130.0, -128.0, -3.0, 5.0], -3.0),  # a constant, raised to -128, with and without a score
        ([-128.0, 0.0, 5.0], 0.0),
        ([-100.0, -3.0, 5.0], None),
        ([-200.0, -128.0, -3.0, 5.0], None),
        ([1.0, 2.0], None),
        ([-1e4, -2000.0, -1500.0, -900.0, 0.0], None),  # no gap
    ],
)
def test_what_is_masked_lies_far_below_every_score(values: list[float], lowest: float | None) -> None:
    found = lowest_score(counted(np.array(values, np.float32)), 4)
    assert found is None if lowest is None else found is not None and lowest * 1.04 <= found <= lowest


def test_an_example_or_a_channel_that_is_masked_whole_keeps_its_values() -> None:
    seen = counted(np.array([[-1e4, 1.0], [-1e4, 2.0]], np.float32))
    nothing = np.zeros(2)

    def by_channel(*maxima: float) -> ChannelStatistics:
        held = np.array(maxima, np.float32)
        return ChannelStatistics(axis=1, minima=held, maxima=held, sums=nothing, squares=nothing)

    assert lowest_score(replace(seen, channels=by_channel(1.0, 2.0)), 4) is not None
    assert lowest_score(replace(seen, channels=by_channel(-1e4, 2.0)), 4) is None
    assert lowest_score(replace(seen, channels=by_channel(-1e4, 2.0)), 2) is not None  # positions of a row
    assert lowest_score(replace(seen, sample_maxima=np.array([2.0, -1e4], np.float32)), 4) is None


@pytest.mark.parametrize("step", [1 / 255, 1 / 32767, 2.0**-20])
def test_sixty_four_masked_elements_stay_below_half_a_step(step: float) -> None:
    assert 64 * np.exp(-reach_below(step)) <= step / 2 < 64 * np.exp(-reach_below(step) + 0.25)
