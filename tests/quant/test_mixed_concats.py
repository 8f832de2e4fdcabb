"""quant: concats of boxes beside scores: found, and kept apart. Decisions by hand, and values of a real small model."""

from __future__ import annotations

import numpy as np
import pytest

from npubake.quant.lanes import LANES
from npubake.quant.mixed_concats import mixed_concats
from npubake.quant.precisions import Asked, Precisions, decide_precisions
from npubake.quant.qdq import calibrated_model
from npubake.quant.ranges import Range
from tests.quant.graphs import all_values, chain, parsed
from tests.quant.test_assign import made, subject

TAIL = chain(
    ("boxes", "conv", ["x"], ["b"], "Conv"),
    ("scores", "conv", ["x"], ["s"], "Conv"),
    ("sigmoid", "table", ["s"], ["p"], "Sigmoid"),
    ("flat", "movement", ["b"], ["f"], "Reshape"),
    ("cat", "concat", ["f", "p"], ["c"], "Concat"),
    ("turn", "movement", ["c"], ["y"], "Transpose"),
    outputs=["y"],
)
INNER = chain(
    ("cat", "concat", ["x", "z"], ["c"], "Concat"),
    ("turn", "movement", ["c"], ["t"], "Transpose"),
    ("conv", "conv", ["t"], ["y"], "Conv"),
    outputs=["y"],
)


def spans(names: str, **others: float) -> dict[str, Range]:
    return {name: Range(low=0, high=others.get(name, 1.0)) for name in names}


def test_boxes_beside_scores_are_named() -> None:
    (mixed,) = mixed_concats(TAIL, spans("xbspfcy", f=600.0))
    assert mixed.group == "cat"
    assert mixed.ratio == pytest.approx(600)
    assert mixed.absmax == {"f": 600.0, "p": 1.0}


def test_similar_or_dead_inputs_are_not() -> None:
    assert not mixed_concats(TAIL, spans("xbspcy") | {"f": Range(low=-16, high=0)})
    assert not mixed_concats(TAIL, spans("xbspcy") | {"f": Range(low=0, high=0)})


def decided(lane: str, *asked: Asked) -> Precisions:
    return decide_precisions(TAIL, LANES[lane], asked, frozenset(), ["cat"])


def test_at_the_tail_each_input_keeps_its_own_scale() -> None:
    made = decided("a8w8")
    assert {name: made.groups[name].precision for name in ("flat", "cat", "turn")} == {
        "flat": "int8", "cat": "float32", "turn": "float32",
    }  # fmt: skip
    assert made.classes.of["f"] != made.classes.of["p"]
    assert made.dtypes["p"] == "uint8"


def test_before_a_convolution_the_class_holds_16_bits() -> None:
    made = decide_precisions(INNER, LANES["a8w8"], [], frozenset(), ["cat"])
    assert {name for name, dtype in made.dtypes.items() if dtype == "int16"} == {"x", "z", "c", "t"}
    assert made.groups["conv"].precision == "int8"


def test_an_override_has_the_last_word() -> None:
    made = decided("a8w8", Asked(path="layer_overrides[0]", groups=("cat",), precision="int8"))
    assert made.groups["cat"].precision == "int8"


def test_what_is_kept_apart_has_its_scores() -> None:
    """The fault users report: with one scale every score below 1.2 is zero (640 / 255 / 2)."""
    text = "t (float[1,4] x) => (float[1,8] y) { b = Mul(x, k) s = Sigmoid(x) y = Concat<axis = 1>(b, s) }"
    item = subject(text, {"k": np.array(640, np.float32)})
    model, summary = parsed(text, {"k": np.array(640, np.float32)})
    feeds = {"x": np.array([[0.1, 0.3, 0.5, 0.9]], np.float32)}
    assignment = made(item)
    new = all_values(calibrated_model(model, summary, item.facts, assignment.parameters).model, feeds)["y"]
    expected = 1 / (1 + np.exp(-feeds["x"].astype(np.float64)))
    assert np.abs(new[:, 4:] - expected).max() <= 0.5 / 255 + 0.25 * (1 / 255)
    held = made(item, matched=[("node_y",)], layer_overrides=[{"match": {}, "set": {"activation": "int8"}}])
    drowned = all_values(calibrated_model(model, summary, item.facts, held.parameters).model, feeds)["y"]
    assert not drowned[:, 4:].any()
