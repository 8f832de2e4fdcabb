"""quant: reading the parameters of ``calibrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.graph.bit_policy import override_paths
from npubake.quant.lanes import LANES, parse_lane
from npubake.quant.ranges import Range
from npubake.quant.request import Settings, parse_request
from npubake.quant.thresholds import Threshold
from npubake.quant.weight_formats import WeightFormat


def test_what_is_left_out_means_what_the_recipe_schema_says() -> None:
    """The plan leaves defaults out of the parameters, so both sides must know the same ones."""
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "recipe.schema.json").read_text(encoding="utf-8"))
    config = schema["properties"]["quant_config"]["properties"]
    request = parse_request({"lane": "a8w8"})
    assert {name: facts["default"] for name, facts in config["calibration"]["properties"].items()} == {
        "method": request.threshold.method,
        "percentile": request.threshold.percentile,
        "asymmetric": request.threshold.asymmetric,
        "granularity": "per_tensor",  # the only one there is: nothing to hold
    }
    assert {name: facts.get("default") for name, facts in config["weights"]["properties"].items()} == {
        "bits": request.weight_bits,
        "granularity": request.granularity,
        "group_size": request.group_size,
        "symmetric": request.symmetric_weights,
    }
    assert (request.settings, dict(request.input_ranges)) == ((), {})


def test_the_recipe_accepts_what_is_accepted_here() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "recipe.schema.json").read_text(encoding="utf-8"))
    change = schema["$defs"]["layer_override"]["properties"]["set"]["properties"]
    assert set(change) == set(Settings.__slots__)
    for key in ("activation", "output", "weights", "granularity", "method", "bias_correction"):
        for value in change[key]["enum"]:
            override = {"match": {"names": ["*"]}, "set": {key: value}}
            assert parse_request({"lane": "a8w8", "layer_overrides": [override]}).settings == (
                Settings(**{key: value}),
            )
    lanes = set(schema["properties"]["quant_config"]["properties"]["lane"]["enum"]) - {"platform"}
    assert {parse_lane(name).name for name in lanes} == set(LANES)


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


def test_the_format_of_weights_is_the_lanes_unless_it_is_asked() -> None:
    assert parse_request({"lane": "a16w4"}).weight_format == WeightFormat(dtype="int4")
    params = {"bits": 8, "granularity": "per_group", "group_size": 64, "symmetric": False}
    assert parse_request({"lane": "w4a16", "weights": params}).weight_format == WeightFormat(
        dtype="int8", granularity="per_group", group_size=64, symmetric=False
    )
    base = WeightFormat(dtype="int16")
    assert Settings(weights="int4").applied_to_weights(base) == WeightFormat(dtype="int4")
    assert Settings(granularity="per_group", group_size=8).applied_to_weights(base) == WeightFormat(
        dtype="int16", granularity="per_group", group_size=8
    )
    assert Settings(activation="int8").applied_to_weights(base) == base


def test_settings_change_only_what_they_name() -> None:
    base = Threshold(method="percentile", percentile=0.99, asymmetric=False)
    assert Settings(method="minmax").applied(base) == Threshold(method="minmax", percentile=0.99, asymmetric=False)
    assert Settings(asymmetric=True).applied(base) == Threshold(method="percentile", percentile=0.99, asymmetric=True)
    assert not Settings(activation="int16").changes_threshold


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"lane": "a9w9"}, "$.lane"),
        ({"lane": "a8w8", "calibration": {"method": "hydra"}}, "$.calibration.method"),
        ({"lane": "a8w8", "calibration": {"percentile": 99.9}}, "$.calibration.percentile"),
        ({"lane": "a8w8", "calibration": {"percentile": True}}, "$.calibration.percentile"),
        ({"lane": "a8w8", "calibration": {"asymmetric": "no"}}, "$.calibration.asymmetric"),
        ({"lane": "a8w8", "calibration": {"bins": 2}}, "$.calibration.bins"),
        ({"lane": "a8w8", "weights": {"granularity": "per_row"}}, "$.weights.granularity"),
        ({"lane": "a8w8", "calibration": {"granularity": "per_channel"}}, "$.calibration.granularity"),
        ({"lane": "a8w8", "weights": {"bits": 5}}, "$.weights.bits"),
        ({"lane": "a8w8", "weights": {"bits": True}}, "$.weights.bits"),
        ({"lane": "a8w8", "weights": {"group_size": 1}}, "$.weights.group_size"),
        ({"lane": "a8w8", "weights": {"symmetric": "no"}}, "$.weights.symmetric"),
        ({"lane": "a8w8", "layer_overrides": [{"set": {"weights": "int5"}}]}, "$.layer_overrides[0].set.weights"),
        ({"lane": "a8w8", "layer_overrides": [{"set": {"mod": 1}}]}, "$.layer_overrides[0].set.mod"),
        (
            {"lane": "a8w8", "layer_overrides": [{"set": {"bias_correction": "all"}}]},
            "$.layer_overrides[0].set.bias_correction",
        ),
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


def test_the_bit_policy_stands_before_the_overrides() -> None:
    override = {"match": {"names": ["a"]}, "set": {"activation": "int8"}}
    bits = {"roles": {"head": "int16"}, "op_types": {"Softmax": "float32"}}
    request = parse_request({"lane": "a8w8", "bits": bits, "layer_overrides": [override]})
    assert [entry.activation for entry in request.settings] == ["float32", "int16", "int8"]
    assert override_paths(request.overrides) == (
        "quant_config.bits.op_types.Softmax",
        "quant_config.bits.roles.head",
        "layer_overrides[0]",
    )
    with pytest.raises(RecipeError) as caught:
        parse_request({"lane": "a8w8", "bits": {"roles": {"head": "int4"}}})
    assert [fault.path for fault in caught.value.faults] == ["$.quant_config.bits.roles.head.set.activation"]


def test_quantisers_stand_where_the_toolchain_says() -> None:
    assert not parse_request({"lane": "a8w8"}).lane.everywhere
    assert parse_request({"lane": "a8w8", "quantisers": "everywhere"}).lane.everywhere
    with pytest.raises(RecipeError) as caught:
        parse_request({"lane": "a8w8", "quantisers": "nowhere"})
    assert [fault.path for fault in caught.value.faults] == ["$.quantisers"]
