"""quant: settings that no matched layer can heed are refused."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.graph.resolve import resolve_overrides
from npubake.quant.asked_in_vain import (
    KNOWN_RANGES,
    OF_RANGES,
    OF_WEIGHTS,
    granularity_faults,
    learned_layer_faults,
    setting_faults,
    shadowed,
    unheard,
    widened,
)
from npubake.quant.lanes import LANES
from npubake.quant.precisions import Asked, decide_precisions
from npubake.quant.request import Settings, parse_request
from npubake.quant.tensor_ranges import FIXED_RANGES
from tests.graph.summaries import summary
from tests.quant.test_precisions import fused


def paths(lane: str, name: str, **change: Any) -> list[str]:
    overrides = [{"match": {"names": [name]}, "set": change}]
    resolved = resolve_overrides(summary(), overrides)
    asked = [
        Asked(path=entry.path, groups=entry.groups, precision=change.get("activation"), output=change.get("output"))
        for entry in resolved
    ]
    made = decide_precisions(summary(), LANES[lane], asked, frozenset())
    return [fault.path for fault in setting_faults(summary(), overrides, resolved, made)]


@pytest.mark.parametrize(
    ("lane", "name", "change", "refused"),
    [
        ("a8w8", "/stem/Conv", {"granularity": "per_tensor", "hessian": True, "method": "mse"}, []),
        ("a8w8", "/head/Softmax", {"granularity": "per_tensor", "method": "mse"}, ["granularity"]),
        ("a8w8", "/head/Softmax", {"hessian": False, "bias_correction": "none", "mod": False}, []),
        ("a8w8", "/head/*", {"weights": "int16"}, []),  # the head's Conv has weights, the others are no fault
        ("fp16", "/stem/Conv", {"weights": "int4", "percentile": 0.9}, ["weights", "percentile"]),
        ("fp16", "/stem/Conv", {"activation": "int8", "weights": "int4", "percentile": 0.9}, ["percentile"]),  # int32
        ("fp16", "/*/Conv", {"activation": "int8", "weights": "int4", "percentile": 0.9}, []),
        ("a8w8", "/stem/Conv", {"output": "int16"}, []),
        ("a8w8", "/stem/Conv", {"output": "int8"}, []),
        ("a16w8", "/stem/Conv", {"output": "int8"}, ["output"]),  # the head's Conv reads 16 bits
        ("fp16", "/stem/Conv", {"output": "int8"}, ["output"]),
        ("a8w8", "/head/Conv", {"output": "int16"}, ["output"]),  # a sum of 32 bits, for the LSTM to read in float
        ("a8w8", "/head/Conv", {"asymmetric": False}, ["asymmetric"]),
        ("a8w8", "/head/Transpose", {"method": "mse"}, []),
        ("a16w8", "/head/Transpose", {"activation": "int8"}, ["activation"]),  # the Softmax behind it reads 16 bits
        ("a8w8", "/head/Transpose", {"activation": "int8"}, []),
        ("a8w8", "/stem/Conv", {"activation": "float32", "mod": True}, ["mod"]),
    ],
)
def test_settings_that_nothing_reads(lane: str, name: str, change: dict[str, Any], refused: list[str]) -> None:
    assert paths(lane, name, **change) == [f"$.layer_overrides[0].set.{key}" for key in refused]


@pytest.mark.parametrize(("names", "refused"), [(["c1"], False), (["c*"], False), (["act*"], True), (["c2"], True)])
def test_nothing_is_taken_apart_where_nothing_is_fused(names: list[str], refused: bool) -> None:
    overrides = [{"match": {"names": names}, "set": {"fuse": False}}]
    resolved = resolve_overrides(fused(), overrides)
    asked = [Asked(path=entry.path, groups=entry.groups, fuse=False) for entry in resolved]
    made = decide_precisions(fused(), LANES["a8w8"], asked, frozenset())
    found = [fault.path for fault in setting_faults(fused(), overrides, resolved, made)]
    assert found == ["$.layer_overrides[0].set.fuse"] * refused


def test_every_setting_is_of_precisions_weights_or_ranges() -> None:
    others = {"activation", "output", "fuse", "equivalent_transformation"}
    assert {*OF_WEIGHTS, *OF_RANGES, *others} == set(Settings.__slots__)


def test_a_granularity_that_the_platform_does_not_take_names_it() -> None:
    asked = {"calibration": {"granularity": "per_channel"}}
    facts = {"name": "j6p", "activation_granularities": ["per_tensor"]}
    (fault,) = granularity_faults({**asked, "platform": facts})
    assert (fault.path, "j6p" in fault.what) == ("$.quant_config.calibration.granularity", True)
    assert list(granularity_faults({"platform": facts})) == []


def test_a_granularity_that_calibrate_would_refuse_is_refused_before() -> None:
    facts = {"name": "mine", "activation_granularities": ["per_tensor", "per_channel"]}
    (fault,) = granularity_faults({"calibration": {"granularity": "per_channel"}, "platform": facts})
    assert fault.path == "$.quant_config.calibration.granularity"
    with pytest.raises(RecipeError):
        parse_request({"lane": "a8w8", "calibration": {"granularity": "per_channel"}})
    assert list(granularity_faults({"calibration": {"granularity": "per_tensor"}, "platform": facts})) == []


def test_learned_layers_that_are_not_there_are_named_one_by_one() -> None:
    params = {"mod": {"layers": ["/stem/*", "/nothing", "/haed/Conv"]}}
    assert [fault.path for fault in learned_layer_faults(summary(), params)] == [
        "$.quant_config.mod.layers[1]",
        "$.quant_config.mod.layers[2]",
    ]
    assert learned_layer_faults(summary(), {"mod": False}) == learned_layer_faults(summary(), {}) == []


def test_learned_layers_have_weights_in_integers() -> None:
    params = {"mod": {"layers": ["/head/Softmax", "/head/*", "/stem/Conv"]}}
    for lane, refused in (("a8w8", [0]), ("fp16", [0, 1, 2])):
        made = decide_precisions(summary(), LANES[lane], [], frozenset())
        found = [fault.path for fault in learned_layer_faults(summary(), params, made)]
        assert found == [f"$.quant_config.mod.layers[{index}]" for index in refused]


def test_what_later_overrides_take_back_everywhere_is_told() -> None:
    def told(*changes: tuple[str, dict[str, Any]]) -> list[str]:
        entries = [{"match": {"names": [name]}, "set": change} for name, change in changes]
        return [text.partition(":")[0] for text in shadowed(entries, resolve_overrides(summary(), entries))]

    int16, int8 = {"activation": "int16"}, {"activation": "int8"}
    assert told(("/stem/*", int16), ("/*", int8)) == ["layer_overrides[0].set.activation"]
    assert told(("/*", int16), ("/stem/*", int8)) == []
    assert told(("/stem/*", int16), ("/*", {"method": "mse"})) == []
    assert told(("/*", int16), ("/stem/*", int8), ("/head/*", int8)) == ["layer_overrides[0].set.activation"]
    assert told(("/stem/*", {**int16, "method": "mse"}), ("/*", {"method": "minmax"})) == [
        "layer_overrides[0].set.method"
    ]


def test_methods_of_sixteen_bits_are_told() -> None:
    def told(lane: str, name: str, **change: Any) -> list[str]:
        entries = [{"match": {"names": [name]}, "set": change}]
        resolved = resolve_overrides(summary(), entries)
        asked = [Asked.of(entry.path, entry.groups, change) for entry in resolved]
        made = decide_precisions(summary(), LANES[lane], asked, frozenset())
        return [text.partition(":")[0] for text in unheard(summary(), entries, resolved, made)]

    place = "layer_overrides[0].set.method"
    assert (
        told("a16w8", "/stem/Conv", method="mse") == told("a8w8", "/stem/Conv", method="mse", output="int16") == [place]
    )
    assert told("a8w8", "/stem/Conv", method="mse") == told("fp16", "/stem/Conv", method="mse") == []
    assert told("a16w8", "/stem/Conv", asymmetric=False) == []
    assert told("a8w8", "/head/Softmax", method="mse") == [place]
    assert told("a8w8", "/head/S*", method="mse") == []  # the Slice's boxes have a range of their own
    assert {"softmax", *KNOWN_RANGES} == set(FIXED_RANGES)


def test_layers_that_make_wider_integers_than_asked_are_told() -> None:
    def told(lane: str, *changes: tuple[str, dict[str, Any]]) -> list[str]:
        entries = [{"match": {"names": [name]}, "set": change} for name, change in changes]
        resolved = resolve_overrides(summary(), entries)
        asked = [Asked.of(entry.path, entry.groups, entries[entry.index]["set"]) for entry in resolved]
        made = decide_precisions(summary(), LANES[lane], asked, frozenset())
        return [text.partition(":")[0] for text in widened(summary(), entries, resolved, made)]

    int8, place = {"activation": "int8"}, "layer_overrides[0].set.activation"
    assert told("a16w8", ("/stem/Conv", int8)) == [place]
    assert told("a8w8", ("/stem/Conv", int8)) == told("a16w8", ("/*", int8)) == []
    assert told("a8w8", ("/stem/Conv", {**int8, "output": "int16"})) == []  # asked for
    assert told("a16w8", ("/stem/Conv", int8), ("/stem/Conv", {"activation": "int16"})) == []
