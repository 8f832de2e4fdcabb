"""quant: each rule finds its case, keeps quiet without it, and its recipe lines make the finding go away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from npubake.calibration.counting import Tables, Tally
from npubake.calibration.statistics import TensorStatistics
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.quant.lint import RULES, Examined, Finding, findings, override_lines
from npubake.quant.request import parse_request
from npubake.quant.what_if import forecasts
from tests.quant.graphs import chain

Values = Mapping[str, NDArray[np.float32]]


def statistics(values: NDArray[np.float32]) -> TensorStatistics:
    tally = Tally(1)
    assert tally.add(values, Tables())
    return tally.result()


def found(
    graph: GraphSummary,
    values: Values,
    lane: str = "a8w8",
    overrides: Any = (),
    method: str = "minmax",
    held: int | None = None,
) -> list[Finding]:
    counted = {name: statistics(value) for name, value in values.items()}
    request = parse_request({"lane": lane, "calibration": {"method": method}, "layer_overrides": list(overrides)})
    return list(
        findings(
            Examined(
                summary=graph,
                statistics=counted,
                samples=16,
                request=request,
                matched=[entry.groups for entry in resolve_overrides(graph, request.overrides)],
                forecasts=forecasts(graph, counted, {}),
                held=held,
            )
        )
    )


GENERATOR = np.random.default_rng(5)


def normal(scale: float = 1.0) -> NDArray[np.float32]:
    return GENERATOR.normal(0, scale, size=(500, 4)).astype(np.float32)


def sparse_outlier() -> NDArray[np.float32]:
    """One value in a million, 20 where the others end at 2: less than what makes a channel stand out."""
    values = GENERATOR.uniform(-2, 2, size=(250_000, 4)).astype(np.float32)
    values[0, 0] = 20.0
    return values


GRAPH = chain(
    ("first[0]", "conv", ["x"], ["a"], "Conv"),
    ("sig", "table", ["a"], ["s"], "Sigmoid"),
    ("join", "concat", ["a", "s"], ["j"], "Concat"),
    ("last", "conv", ["j"], ["y"], "Conv"),
    ("tail", "conv", ["y"], ["z"], "Conv"),
    outputs=["z"],
)
PLAIN = {"x": normal(), "a": normal(), "s": normal(), "j": normal(), "y": normal(), "z": normal()}
CASES: Mapping[str, tuple[str, Values, str]] = {
    "float16_overflow": ("a", {"a": normal(1e5)}, "fp16"),
    "dead_tensor": ("y", {"y": np.zeros((500, 4), np.float32)}, "a8w8"),
    "dead_channels": ("y", {"y": normal() * np.array([1, 0, 1, 0], np.float32)}, "a8w8"),
    "mixed_concat": ("j", {"a": normal(300.0)}, "a8w8"),
    "outlier_channels": ("y", {"y": normal() * np.array([1, 1, 1, 40], np.float32)}, "a8w8"),
    "outlier_values": ("y", {"y": sparse_outlier()}, "a8w8"),
    "masked_values": ("y", {"y": np.where(np.arange(500)[:, None] % 3, normal(), -1e4).astype(np.float32)}, "a16w8"),
}


def test_a_plain_model_has_no_finding() -> None:
    assert found(GRAPH, PLAIN) == []


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_rule_finds_its_case_and_its_lines_mend_it(rule: str) -> None:
    tensor, changed, lane = CASES[rule]
    first = found(GRAPH, {**PLAIN, **changed}, lane)
    assert [(entry.rule, entry.tensor) for entry in first] == [(rule, tensor)]
    assert [entry.severity for entry in first] == ["note" if rule in ("dead_channels", "mixed_concat") else "warning"]
    if rule == "outlier_channels":
        assert first[0].what.startswith("channel 3 reaches ")
    recipe = yaml.safe_load(first[0].recipe)
    if rule == "dead_channels":
        assert recipe == {"calibration": {"samples": 64}}
        return
    assert found(GRAPH, {**PLAIN, **changed}, lane, recipe["layer_overrides"]) == []


@pytest.mark.parametrize(
    ("held", "advised", "more"), [(None, 64, False), (100, 64, False), (32, 32, False), (16, 64, True)]
)
def test_dead_channels_ask_for_examples_that_there_are_or_for_more_data(
    held: int | None, advised: int, more: bool
) -> None:
    tensor, changed, lane = CASES["dead_channels"]
    (one,) = found(GRAPH, {**PLAIN, **changed}, lane, held=held)
    assert one.tensor == tensor
    assert yaml.safe_load(one.recipe) == {"calibration": {"samples": advised}}
    assert ("must be added" in one.what, "#" in one.recipe) == (more, more)


@pytest.mark.parametrize(("tail", "advised"), [("conv", "int16"), (None, "float32")])
def test_the_lines_for_boxes_beside_scores_say_what_calibrate_does_unasked(tail: str | None, advised: str) -> None:
    """Where nothing computes with them, one scale of 16 bits would only cost the scores levels."""
    last = [("last", tail, ["j"], ["y"], "Conv")] if tail else []
    graph = chain(
        ("first", "conv", ["x"], ["a"], "Conv"),
        ("sig", "table", ["a"], ["s"], "Sigmoid"),
        ("join", "concat", ["a", "s"], ["j"], "Concat"),
        *last,
        outputs=["y"] if tail else ["j"],
    )
    (finding,) = (entry for entry in found(graph, {**PLAIN, "a": normal(300.0)}) if entry.rule == "mixed_concat")
    assert yaml.safe_load(finding.recipe)["layer_overrides"][0]["set"] == {"activation": advised}


def test_values_too_small_for_float16_are_found_too() -> None:
    values = {**PLAIN, "a": normal(1e-7)}
    (finding,) = found(GRAPH, values, "fp16")
    assert (finding.rule, finding.tensor) == ("float16_overflow", "a")
    assert found(GRAPH, values, "fp16", yaml.safe_load(finding.recipe)["layer_overrides"]) == []


def test_a_fixed_range_that_is_hardly_used() -> None:
    graph = chain(
        ("soft", "softmax", ["x"], ["s"], "Softmax"), ("end", "conv", ["s"], ["y"], "Conv"), outputs=["y"]
    )  # fmt: skip
    values = {"x": normal(), "s": np.abs(normal(1e-3)), "y": normal()}
    first = found(graph, values)
    assert [(entry.rule, entry.tensor, entry.layer) for entry in first] == [("unused_range", "s", "soft")]
    assert found(graph, values, overrides=yaml.safe_load(first[0].recipe)["layer_overrides"]) == []
    assert found(graph, {**values, "s": np.abs(normal(0.2))}) == []


@pytest.mark.parametrize("lowest", [-1e4, float(np.finfo(np.float32).min)])
def test_masks_that_calibrate_sees_to_are_a_note(lowest: float) -> None:
    """Added to scores that a Softmax alone reads; the mask comes in as an input of the model."""
    graph = chain(
        ("qk", "conv", ["x"], ["raw"], "Conv"),
        ("sum", "add", ["raw", "mask"], ["scores"], "Add"),
        ("soft", "softmax", ["scores"], ["s"], "Softmax"),
        ("end", "conv", ["s"], ["y"], "Conv"),
        outputs=["y"],
    )
    mask = np.where(np.arange(4) < 2, 0.0, lowest).astype(np.float32) * np.ones((500, 1), np.float32)
    raw = normal()
    values = {"x": normal(), "raw": raw, "mask": mask, "scores": raw + mask, "s": np.abs(normal(0.2)), "y": normal()}
    noted = found(graph, values, "a16w8")
    assert [(entry.rule, entry.tensor, entry.severity) for entry in noted] == [
        ("masked_values", "mask", "note"),
        ("masked_values", "scores", "note"),
    ]
    assert found(graph, {**values, "mask": np.zeros((500, 4), np.float32) + 1, "scores": raw}, "a16w8") == []


def rounded_db(values: NDArray[np.float32], low: float, high: float) -> float:
    """SQNR of ``values`` in 256 levels from ``low`` to ``high``, by rounding them."""
    step = (high - low) / 255
    error = values - np.clip(np.rint(values / step), np.rint(low / step), np.rint(low / step) + 255) * step
    return float(10 * np.log10(np.square(values, dtype=np.float64).sum() / np.square(error, dtype=np.float64).sum()))


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_method_that_costs_more_than_it_saves(method: str) -> None:
    """Cubes of a half normal: the largest few hold much of the signal."""
    values = (np.maximum(GENERATOR.normal(size=(50_000, 4)), 0) ** 3).astype(np.float32)
    (first,) = found(GRAPH, {**PLAIN, "y": values}, method=method)
    assert (first.rule, first.tensor) == ("costly_method", "y")
    words = first.what.replace(":", "").split()
    low, high = float(words[2]), float(words[4])
    kept, least = (float(words[place - 1]) for place, word in enumerate(words) if word.startswith("dB"))
    assert kept == pytest.approx(rounded_db(values, low, high), abs=0.5)
    assert least > kept + 3
    lines = yaml.safe_load(first.recipe)["layer_overrides"]
    assert found(GRAPH, {**PLAIN, "y": values}, method=method, overrides=lines) == []
    assert found(GRAPH, {**PLAIN, "y": values}, method="mse") == []


def test_every_rule_has_a_case_here() -> None:
    assert {*CASES, "unused_range", "costly_method"} == set(RULES)


def test_a_lane_of_16_bits_has_no_finding_about_8() -> None:
    changed = {"y": normal() * np.array([1, 1, 1, 40], np.float32), "a": normal(300.0)}
    assert found(GRAPH, {**PLAIN, **changed}, "a16w8") == []


def test_names_match_as_they_are_and_stay_yaml() -> None:
    graph = chain(('a*[0]?"{é}: #', "conv", ["x"], ["y"], "Conv"), ("a0", "conv", ["y"], ["z"], "Conv"), outputs=["z"])
    written = yaml.safe_load(override_lines(['a*[0]?"{é}: #'], activation="int16"))["layer_overrides"]
    assert written[0]["set"] == {"activation": "int16"}
    assert [entry.groups for entry in resolve_overrides(graph, written)] == [('a*[0]?"{é}: #',)]
