"""quant: movements behind float groups keep the float; what is rounded again for nobody is said."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary
from npubake.quant.assign import Assignment, Subject, assign
from npubake.quant.lanes import LANES
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import Precision
from npubake.quant.precisions import Asked, Precisions, decide_precisions
from npubake.quant.record import warnings
from npubake.quant.request import parse_request
from tests.fixedpoint.builds import Case, all_runs, float_model, node, session, statistics
from tests.quant.graphs import chain, sqnr

SOFT = ("soft", "softmax", ["x"], ["a"], "Softmax")


def decide(summary: GraphSummary, *asked: tuple[str, Precision], beyond: frozenset[str] = frozenset()) -> Precisions:
    entries = [
        Asked(path=f"layer_overrides[{index}]", groups=(group,), precision=precision)
        for index, (group, precision) in enumerate(asked)
    ]
    return decide_precisions(summary, LANES["a8w8"], entries, beyond)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_chain_of_movements_to_the_output_follows(precision: Precision) -> None:
    summary = chain(
        SOFT,
        ("r", "movement", ["a"], ["b"], "Reshape"),
        ("t", "movement", ["b"], ["c"], "Transpose"),
        outputs=["c"],
    )
    made = decide(summary, ("soft", precision))
    assert {entry.precision for entry in made.groups.values()} == {precision}
    assert made.groups["r"].why == "follows soft (layer_overrides[0]); no integer group reads it"
    assert made.groups["t"].why.startswith("follows r (follows soft (layer_overrides[0])")
    assert dict(made.dtypes) == {}
    assert made.narrowed == ()


def test_a_movement_that_an_integer_group_reads_stays() -> None:
    tail = ("c", "conv", ["b"], ["y"], "Conv")
    summary = chain(SOFT, ("r", "movement", ["a"], ["b"], "Reshape"), tail, outputs=["b", "y"])
    made = decide(summary, ("soft", "float32"))
    assert (made.groups["r"].precision, made.dtypes["a"]) == ("int8", "uint8")
    assert made.narrowed == ()  # the convolution computes with it
    made = decide(summary, ("soft", "float32"), ("c", "float16"))
    assert (made.groups["r"].precision, dict(made.dtypes)) == ("float32", {})


def test_without_an_override_nothing_follows_and_floats_of_the_lane_are_followed() -> None:
    summary = chain(SOFT, ("r", "movement", ["a"], ["b"], "Reshape"), outputs=["b"])
    assert {entry.precision for entry in decide(summary).groups.values()} == {"int8"}
    odd = chain(("odd", "float", ["x"], ["a"], "CumSum"), ("r", "movement", ["a"], ["b"], "Reshape"), outputs=["b"])
    assert decide(odd).groups["r"].precision == "float32"


@pytest.mark.parametrize(
    ("reader", "asked"),
    [
        (("p", "movement", ["a"], ["b"], "MaxPool"), ()),
        (("p", "movement", ["a"], ["b"], "Reshape"), (("p", "int8"),)),
        (("p", "concat", ["a", "x"], ["b"], "Concat"), ()),
    ],
)
def test_what_is_rounded_again_for_nobody_is_said(
    reader: tuple[str, str, list[str], list[str], str], asked: tuple[tuple[str, Precision], ...]
) -> None:
    made = decide(chain(SOFT, reader, outputs=["b"]), ("soft", "float32"), *asked)
    (entry,) = made.narrowed
    assert (entry.path, entry.group, entry.tensor) == ("layer_overrides[0]", "soft", "a")
    assert (entry.reader, entry.dtype) == ("p", "uint8")


def test_a_concat_takes_the_wider_float() -> None:
    summary = chain(
        SOFT,
        ("sig", "table", ["x"], ["b"], "Sigmoid"),
        ("j", "concat", ["a", "b"], ["c"], "Concat"),
        outputs=["c"],
    )
    assert decide(summary, ("soft", "float16"), ("sig", "float16")).groups["j"].precision == "float16"
    assert decide(summary, ("soft", "float16"), ("sig", "float32")).groups["j"].precision == "float32"
    assert decide(summary, ("soft", "float16")).groups["j"].precision == "int8"


def quantised(precision: Precision | None, feeds: dict[str, NDArray[np.float32]]) -> tuple[float, Assignment]:
    """SQNR in dB of Softmax then Reshape, lowered; ``precision`` is asked of the Softmax alone."""
    nodes = [node("Softmax", "x", "s", axis=1), node("Reshape", "s shape", "y")]
    model = float_model(nodes, {"x": [1, 40]}, {"shape": np.array([40, 1], np.int64)}, ["y"])
    summary = summarise(model, ())
    overrides = [{"match": {"op_types": ["Softmax"]}, "set": {"activation": precision}}] if precision else []
    request = parse_request({"lane": "a8w8", "calibration": {"method": "minmax"}, "layer_overrides": overrides})
    seen = statistics(model, summary, [feeds])
    item = Subject(summary=summary, graph_digest="0" * 64, facts=model_facts(model), statistics=seen)
    made = assign(item, request, [("s/Softmax",)] * len(overrides))
    case = Case(model=model, summary=summary, parameters=made.parameters)
    want = session(model).run(["y"], feeds)[0]
    return min(sqnr(want, run["y"]) for run in all_runs(case.lower().model, feeds)), made


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_override_in_front_of_a_reshape_reaches_the_output(precision: Precision) -> None:
    feeds = {"x": np.random.default_rng(7).normal(0, 1, (1, 40)).astype(np.float32)}
    before, _ = quantised(None, feeds)
    after, made = quantised(precision, feeds)
    assert after > before + 20
    assert not [line for line in warnings(made.record) if "layer_overrides[0]" in line]
