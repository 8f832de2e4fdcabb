"""quant: reading the parameters of ``calibrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.quant.lanes import LANES, parse_lane
from npubake.quant.ranges import Range
from npubake.quant.request import Settings, parse_request
from npubake.quant.thresholds import Threshold


def test_what_is_left_out_means_what_the_recipe_schema_says() -> None:
    """The plan leaves defaults out of the parameters, so both sides must know the same ones."""
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "recipe.schema.json").read_text(encoding="utf-8"))
    config = schema["properties"]["quant_config"]["properties"]
    request = parse_request({"lane": "a8w8"})
    assert {name: facts["default"] for name, facts in config["calibration"]["properties"].items()} == {
        "method": request.threshold.method,
        "percentile": request.threshold.percentile,
        "asymmetric": request.threshold.asymmetric,
    }
    assert config["weights"]["properties"]["granularity"]["default"] == request.granularity
    assert (request.settings, dict(request.input_ranges)) == ((), {})


def test_the_recipe_accepts_what_is_accepted_here() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "recipe.schema.json").read_text(encoding="utf-8"))
    change = schema["properties"]["layer_overrides"]["items"]["properties"]["set"]["properties"]
    for key in ("activation", "granularity", "method"):
        for value in change[key]["enum"]:
            override = {"match": {"names": ["*"]}, "set": {key: value}}
            assert parse_request({"lane": "a8w8", "layer_overrides": [override]}).settings == (
                Settings(**{key: value}),
            )
    lanes = schema["properties"]["quant_config"]["properties"]["lane"]["enum"]
    assert {parse_lane(name).name for name in lanes if name != "platform"} == set(LANES)


def test_every_choice_is_read() -> None:
    override = {"match": {"names": ["a*"]}, "set": {"activation": "int16", "method": "percentile", "percentile": 0.99}}
    request = parse_request(
        {
            "lane": "w8a8",
            "calibration": {"method": "percentile", "percentile": 0.999, "asymmetric": False},
            "weights": {"granularity": "per_tensor"},
            "layer_overrides": [override],
            "input_ranges": {"x": [-1, 1]},
        }
    )
    assert request.lane.name == "a8w8"
    assert request.threshold == Threshold(method="percentile", percentile=0.999, asymmetric=False)
    assert request.granularity == "per_tensor"
    assert request.settings == (Settings(activation="int16", method="percentile", percentile=0.99),)
    assert request.input_ranges == {"x": Range(low=-1, high=1)}
    assert request.overrides == (override,)


def test_settings_change_only_what_they_name() -> None:
    base = Threshold(method="percentile", percentile=0.99, asymmetric=False)
    assert Settings(method="minmax").applied(base) == Threshold(method="minmax", percentile=0.99, asymmetric=False)
    assert Settings(asymmetric=True).applied(base) == Threshold(method="percentile", percentile=0.99, asymmetric=True)
    assert not Settings(activation="int16").changes_threshold


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"lane": "a9w9"}, "$.lane"),
        ({"lane": "a8w8", "calibration": {"method": "entropy"}}, "$.calibration.method"),
        ({"lane": "a8w8", "calibration": {"percentile": 99.9}}, "$.calibration.percentile"),
        ({"lane": "a8w8", "calibration": {"percentile": True}}, "$.calibration.percentile"),
        ({"lane": "a8w8", "calibration": {"asymmetric": "no"}}, "$.calibration.asymmetric"),
        ({"lane": "a8w8", "calibration": {"bins": 2}}, "$.calibration.bins"),
        ({"lane": "a8w8", "weights": {"granularity": "per_group"}}, "$.weights.granularity"),
        ({"lane": "a8w8", "layer_overrides": [{"set": {"activation": "int4"}}]}, "$.layer_overrides[0].set.activation"),
        ({"lane": "a8w8", "layer_overrides": [{"set": {"bits": 4}}]}, "$.layer_overrides[0].set.bits"),
        ({"lane": "a8w8", "input_ranges": {"x": [1, 2]}}, "$.input_ranges.x"),
        ({"lane": "a8w8", "input_ranges": {"x": [0, 0]}}, "$.input_ranges.x"),
        ({"lane": "a8w8", "input_ranges": {"x": [0, float("inf")]}}, "$.input_ranges.x"),
        ({"lane": "a8w8", "input_ranges": {"x": 3}}, "$.input_ranges.x"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_place(params: dict[str, Any], path: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_request(params)
    assert [fault.path for fault in caught.value.faults] == [path]


def test_all_faults_come_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_request({"lane": "x", "calibration": {"method": "y"}, "weights": {"granularity": "z"}})
    assert len(caught.value.faults) == 3
