"""quant: what is asked of the whole model and nothing in it can heed is refused, at its place; with bits that heed it,
it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.quant.asked_of_all import recipe_faults, recipe_warnings
from npubake.quant.lanes import LANES
from npubake.quant.precisions import Asked, Precisions, decide_precisions
from tests.graph.summaries import summary
from tests.quant.graphs import parsed

PLATFORM = {"name": "mine", "precisions": ["int8", "int16", "float16"]}
SHAPES = {"w": (8, 4), "b": (4,), "k": (4, 4, 1, 1), "g": (8,), "o": (8,), "s": (1,)}
VALUES = {name: np.random.default_rng(3).normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def graph(text: str) -> GraphSummary:
    names = [name for name in VALUES if f"{name})" in text or f", {name}" in text]
    return parsed(text, {name: VALUES[name] for name in names})[1]


NO_WEIGHTS = graph("t (float[1,8] x) => (float[1,8] y) { y = Softmax(x) }")
NO_BIAS = graph("t (float[1,8] x) => (float[1,4] y) { y = MatMul(x, w) }")
WITH_BIAS = graph("t (float[1,8] x) => (float[1,4] y) { a = MatMul(x, w) y = Add(a, b) }")
NORM = graph("t (float[1,8] x) => (float[1,4] y) { n = LayerNormalization(x, g, o) r = Relu(n) y = MatMul(r, w) }")
RMS = graph("t (float[1,8] x) => (float[1,4] y) { n = Mul(x, g) y = MatMul(n, w) }")
SCALAR = graph("t (float[1,8] x) => (float[1,4] y) { n = Mul(x, s) y = MatMul(n, w) }")
BEHIND = graph("t (float[1,8] x) => (float[1,4] y) { a = MatMul(x, w) y = Softmax(a) }")


def precisions(given: GraphSummary, lane: str, **bits: Any) -> Precisions:
    """bits: of all nodes of an operator type, as an override."""
    overrides = [{"match": {"op_types": [name]}, "set": {"activation": value}} for name, value in bits.items()]
    resolved = resolve_overrides(given, overrides)
    asked = [
        Asked(path=entry.path, groups=entry.groups, precision=overrides[entry.index]["set"]["activation"])
        for entry in resolved
    ]
    return decide_precisions(given, LANES[lane], asked, frozenset())


def paths(
    given: GraphSummary, lane: str, *places: str, platform: Mapping[str, Any] = PLATFORM, **bits: Any
) -> list[str]:
    faults = list(recipe_faults(given, places, precisions(given, lane, **bits), platform))
    assert all(fault.what and fault.hint for fault in faults)
    return [fault.path.removeprefix("$.quant_config.") for fault in faults]


EVERYTHING = (
    "calibration.method", "calibration.asymmetric", "weights.bits", "weights.granularity", "weights.symmetric",
    "search_weight_scale", "hessian", "mod", "bias_correction", "equivalent_transformation", "tuning.level",
    "tuning.judge", "tuning.held_out", "tuning.max_int16", "load.scales",
)  # fmt: skip


def test_a_lane_of_floats_heeds_nothing_that_is_said_of_integers() -> None:
    assert sorted(paths(summary(), "fp16", *EVERYTHING)) == sorted(EVERYTHING)


@pytest.mark.parametrize("lane", ["a8w8", "fp16_a8w8"])
def test_a_lane_of_eight_bits_heeds_all_of_it(lane: str) -> None:
    assert paths(summary(), lane, *EVERYTHING) == []


def test_integers_by_override_heed_it_in_a_lane_of_floats() -> None:
    assert paths(summary(), "fp16", *EVERYTHING, Conv="int8") == []
    assert paths(summary(), "a8w8", "hessian", "weights.bits", Conv="float32") == ["weights.bits", "hessian"]


def test_a_model_without_weights_heeds_what_is_said_of_ranges() -> None:
    asked = ("calibration.method", "tuning.level", "hessian", "bias_correction", "equivalent_transformation")
    assert sorted(paths(NO_WEIGHTS, "a8w8", *asked)) == ["bias_correction", "equivalent_transformation", "hessian"]


@pytest.mark.parametrize(("given", "refused"), [(NO_BIAS, True), (WITH_BIAS, False), (summary(), False)])
def test_a_bias_is_corrected_where_there_is_one(given: GraphSummary, refused: bool) -> None:
    assert paths(given, "a8w8", "bias_correction") == ["bias_correction"] * refused


@pytest.mark.parametrize(
    ("given", "refused"),
    [(NORM, False), (RMS, False), (SCALAR, True), (BEHIND, True), (NO_BIAS, True)],
    ids=["layer norm", "factor for each channel", "one factor", "norm behind", "no norm"],
)
def test_what_is_smoothed_stands_behind_a_norm(given: GraphSummary, refused: bool) -> None:
    place = "equivalent_transformation.smoothing"
    assert paths(given, "a8w8", "equivalent_transformation", place) == [place] * refused


def test_only_eight_bits_can_be_lifted() -> None:
    assert paths(summary(), "a8w8", "tuning.max_int16") == []
    assert paths(summary(), "a16w8", "tuning.max_int16") == ["tuning.max_int16"]
    narrow = {"name": "narrow", "precisions": ["int8"]}
    (fault,) = recipe_faults(summary(), ["tuning.max_int16"], precisions(summary(), "a8w8"), narrow)
    assert "narrow" in fault.what


def test_scales_are_learned_of_eight_bits() -> None:
    asked = ("mod", "mod.learn.rounding", "mod.learn.activation_scale", "mod.learn.zero_point")
    assert paths(summary(), "a8w8", *asked) == []
    assert paths(summary(), "a16w8", *asked) == ["mod.learn", "mod.learn"]
    assert paths(summary(), "fp16", *asked) == ["mod"]


def test_a_method_that_sixteen_bits_do_not_hear_is_told() -> None:
    def told(lane: str, **bits: Any) -> list[str]:
        return list(recipe_warnings(summary(), ["calibration.method"], precisions(summary(), lane, **bits)))

    assert (told("a8w8"), told("fp16"), len(told("a16w8"))) == ([], [], 1)
    assert told("a16w8", Softmax="int8", Transpose="int8", Slice="int8", Conv="int8") == []
    assert list(recipe_warnings(summary(), [], precisions(summary(), "a16w8"))) == []
