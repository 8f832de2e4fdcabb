"""quant: what lane, policy and overrides come to for each layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npubake.errors import RecipeError
from npubake.graph.resolve import resolve_overrides
from npubake.quant.assign import Subject, assign
from npubake.quant.loading import LoadedScales
from npubake.quant.operands import ModelFacts
from npubake.quant.parameters import TensorParameters
from npubake.quant.request import parse_request
from npubake.quant.resolved import Setting, resolved_layers
from tests.graph.summaries import summary
from tests.quant.graphs import observed
from tests.quant.test_weight_choice import MODEL, SUMMARY, VALUES


def settings(params: dict[str, Any]) -> dict[str, dict[str, Setting]]:
    return {layer.group: dict(layer.settings) for layer in resolved_layers(summary(), {"lane": "a8w8", **params})}


def override(name: str, **change: Any) -> dict[str, Any]:
    return {"match": {"names": [name]}, "set": change}


def test_the_lane_decides_where_nothing_else_does() -> None:
    layers = resolved_layers(summary(), {"lane": "a8w8"})
    assert [layer.group for layer in layers] == [group.name for group in summary().groups]
    stem = layers[0]
    assert (stem.op_types, "first_layer" in stem.roles) == (("Conv", "Relu"), True)
    assert stem.settings["activation"] == Setting(value="int8", why="lane a8w8")
    assert stem.settings["output"].value == "uint8"
    assert stem.settings["weights"] == Setting(value="int8", why="lane a8w8")
    assert stem.settings["granularity"] == Setting(value="per_channel", why="default")
    assert stem.settings["method"] == Setting(value="auto", why="default")
    assert "percentile" not in stem.settings
    lstm = next(layer for layer in layers if layer.kind == "float")
    assert lstm.settings.keys() & {"weights", "granularity", "hessian"} == set()
    assert "no integer kernel" in lstm.settings["activation"].why


def test_the_later_of_policy_and_overrides_decides_and_is_named() -> None:
    params = {
        "bits": {"op_types": {"Conv": "int16"}, "roles": {"first_layer": "float32"}},
        "calibration": {"method": "percentile", "percentile": 0.999},
        "layer_overrides": [
            override("/*/Conv", activation="int8", granularity="per_tensor"),
            override("/head/Conv", activation="int16", percentile=0.99),
        ],
    }
    found = settings(params)
    assert found["/stem/Conv"]["activation"] == Setting(value="int8", why="layer_overrides[0]")
    assert found["/head/Conv"]["activation"] == Setting(value="int16", why="layer_overrides[1]")
    assert found["/head/Conv"]["granularity"] == Setting(value="per_tensor", why="layer_overrides[0]")
    narrow = settings({"calibration": params["calibration"]})["/stem/Conv"]  # (beside int16 no method is heard)
    assert narrow["percentile"] == Setting(value=0.999, why="quant_config.calibration")
    del params["layer_overrides"]
    found = settings(params)
    assert found["/stem/Conv"]["activation"] == Setting(value="float32", why="quant_config.bits.roles.first_layer")
    assert found["/head/Conv"]["activation"] == Setting(value="int16", why="quant_config.bits.op_types.Conv")


def test_ranges_that_mathematics_knows_are_said_to_be_so() -> None:
    assert settings({})["/head/Softmax"]["method"].value == "fixed range"


def test_bits_and_scales_that_are_loaded_are_shown_as_such() -> None:
    """16 bits of an earlier build, where the lane is the same and the recipe says nothing of them."""
    wide = TensorParameters(dtype="int16", scale=0.5, zero_point=0, low=-16383.5, high=16383.5)
    loaded = LoadedScales(tensors={"stem_relu": wide}, weights={}, lane="a8w8")
    place = "quant_config.load.scales"

    def stem(lane: str = "a8w8", **change: Any) -> tuple[Setting, Setting]:
        params = {"lane": lane, "layer_overrides": [override("/stem/Conv", **change)] if change else []}
        shown = resolved_layers(summary(), params, loaded)[0].settings
        return shown["output"], shown["method"]

    scale = Setting(value="loaded scale", why=place)
    assert stem() == (Setting(value="int16", why=place), scale)
    assert stem(output="int8") == (Setting(value="uint8", why="layer_overrides[0]"), scale)
    assert stem("w4a16") == (Setting(value="int16", why="lane w4a16"), scale)


def test_the_whole_configuration_of_weights_is_named() -> None:
    weights = {"bits": 8, "granularity": "per_tensor", "symmetric": False}
    found = settings({"weights": weights, "layer_overrides": [override("/head/Conv", weights="int16")]})
    assert found["/stem/Conv"]["weights"] == Setting(value="int8", why="quant_config.weights")
    assert found["/stem/Conv"]["symmetric"] == Setting(value=False, why="quant_config.weights")
    assert found["/stem/Conv"]["granularity"] == Setting(value="per_tensor", why="quant_config.weights")
    assert found["/head/Conv"]["weights"] == Setting(value="int16", why="layer_overrides[0]")


def test_what_keeps_8_bits_in_a_lane_of_4_is_said() -> None:
    grouped = {"granularity": "per_group", "group_size": 16}
    found = settings({"lane": "w4a16", "weights": grouped, "layer_overrides": [override("/head/Conv", weights="int4")]})
    assert found["/stem/Conv"]["weights"] == Setting(value="int4", why="lane w4a16")
    assert found["/head/Conv"]["weights"] == Setting(value="int4", why="layer_overrides[0]")
    assert found["/head/Conv"]["group_size"] == Setting(value=16, why="quant_config.weights")


@pytest.mark.parametrize(
    "params",
    [
        {"lane": "w4a16"},
        {"lane": "w4a16", "weights": {"granularity": "per_group", "group_size": 8}},
        {"lane": "a8w8", "weights": {"bits": 4, "granularity": "per_group", "group_size": 4, "symmetric": False}},
        {"lane": "a16w16", "layer_overrides": [override("node_d", weights="int4", granularity="per_tensor")]},
    ],
)
def test_what_is_shown_of_weights_and_outputs_is_what_calibrate_makes(params: dict[str, Any]) -> None:
    feeds = {"x": np.random.default_rng(2).normal(size=(1, 8, 6, 6)).astype(np.float32)}
    facts = ModelFacts(
        initializers=VALUES,
        attributes={node.name: {"group": 8} if node.name == "node_d" else {} for node in SUMMARY.nodes},
    )
    subject = Subject(summary=SUMMARY, graph_digest="", facts=facts, statistics=observed(MODEL, SUMMARY, [feeds]))
    request = parse_request(params)
    matched = [entry.groups for entry in resolve_overrides(SUMMARY, request.overrides)]
    made = assign(subject, request, matched).parameters
    outputs = {group.name: group.outputs[0] for group in SUMMARY.groups}
    for layer in resolved_layers(SUMMARY, params):
        if layer.group in made.weights:
            entry, shown = made.weights[layer.group], layer.settings
            assert shown["weights"].value == entry.dtype
            assert (shown["granularity"].value == "per_group") == bool(entry.multipliers)
            assert (shown["granularity"].value == "per_tensor") == (len(set(entry.scales)) == 1)
            if not made.groups[layer.group].accumulator_output:
                assert shown["output"].value == made.tensors[outputs[layer.group]].dtype


def test_sixteen_bits_leave_no_range_to_a_method() -> None:
    found = settings({"lane": "a16w8", "calibration": {"method": "percentile"}})
    assert found["/stem/Conv"]["method"].value == "all that was seen"
    assert "percentile" not in found["/stem/Conv"]


def test_steps_are_asked_for_forbidden_or_left_to_the_level() -> None:
    params = {
        "tuning": {"level": "none"},
        "hessian": {},
        "search_weight_scale": False,
        "bias_correction": "analytic",
        "mod": {"layers": ["/head/*"]},
        "equivalent_transformation": {},
        "layer_overrides": [override("/head/Conv", hessian=False, equivalent_transformation=False)],
    }
    found = settings(params)
    stem, head = found["/stem/Conv"], found["/head/Conv"]
    assert (stem["hessian"].value, head["hessian"].value) == (True, False)
    assert head["hessian"].why == "layer_overrides[0]"
    assert (stem["search_weight_scale"].value, stem["bias_correction"].value) == (False, "analytic")
    assert (stem["mod"].value, head["mod"].value) == (False, True)
    assert (stem["equivalent_transformation"].value, head["equivalent_transformation"].value) == (True, False)
    assert settings({})["/stem/Conv"]["hessian"] == Setting(value="level default", why="default")
    assert "hessian" not in settings({"tuning": {"level": "none"}})["/stem/Conv"]


def test_a_selector_that_selects_nothing_is_refused() -> None:
    for params in ({"layer_overrides": [override("/nothing", activation="int8")]}, {"mod": {"layers": ["/nothing"]}}):
        with pytest.raises(RecipeError):
            settings(params)
