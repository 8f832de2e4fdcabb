"""What the stages of the quantiser read of a recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npubake.document.reader import Document, read_text
from npubake.plan import parameters
from npubake.plan.subject import Subject
from npubake.recipe import convert
from tests.plan.test_plan import RECIPE, subjects


def subject(folder: Path, quant_config: str, overrides: str = "[]") -> Subject:
    """A target whose quant_config and layer_overrides read so, whether or not a stage carries them out yet."""
    (made,) = subjects(folder, platforms="[generic]")
    document = Document(file="r.yaml")
    read_text(f"quant_config: {quant_config}\nlayer_overrides: {overrides}\n".encode(), document)
    root = document.root
    assert root is not None
    data = root.plain()
    recipe = replace(
        made.target.recipe,
        quant_config=convert.quant_config(root, data["quant_config"]),
        layer_overrides=tuple(convert.layer_override(entry) for entry in data["layer_overrides"]),
    )
    return replace(made, target=replace(made.target, recipe=recipe))


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("{}", {}),
        ("{tuning: {level: default, judge: true}}", {}),
        ("{tuning: {level: best, max_int16: 0}}", {"tuning": {"level": "best", "max_int16": 0}}),
        ("{hessian: true, search_weight_scale: false}", {"hessian": {}, "search_weight_scale": False}),
        ("{hessian: {damping: 0.1, block_size: 64}}", {"hessian": {"block_size": 64}}),
        ("{hessian: false}", {"hessian": False}),
        ("{search_weight_scale: {candidates: 8}}", {"search_weight_scale": {"candidates": 8}}),
        ("{bias_correction: none}", {"bias_correction": "none"}),
        (
            "{mod: {layers: [a, b], epochs: 3, learn: [rounding]}}",
            {"mod": {"layers": ["a", "b"], "epochs": 3, "learn": ["rounding"]}},
        ),
        ("{mod: {}}", {"mod": {}}),
        ("{weights: {bits: 4, granularity: per_group, group_size: 32}}",
         {"weights": {"bits": 4, "granularity": "per_group"}}),
        ("{bits: {roles: {head: int16}}}", {"bits": {"roles": {"head": "int16"}}}),
    ],
)  # fmt: skip
def test_tune_reads_what_is_asked_for_and_not_the_defaults(tmp_path: Path, text: str, params: dict[str, Any]) -> None:
    assert parameters.of_tune(subject(tmp_path, text)) == {**parameters.of_tune(subject(tmp_path, "{}")), **params}


def test_calibrate_reads_no_step_of_tune(tmp_path: Path) -> None:
    asked = subject(tmp_path, "{hessian: true, mod: {}, bias_correction: analytic, tuning: {level: best}}")
    assert parameters.of_calibrate(asked) == parameters.of_calibrate(subject(tmp_path, "{}"))


def test_what_is_missing_of_loaded_scales_reaches_calibrate(tmp_path: Path) -> None:
    asked = subject(tmp_path, "{load: {scales: a.json, missing: calibrate}}")
    assert parameters.of_calibrate(asked)["missing"] == "calibrate"
    assert "missing" not in parameters.of_calibrate(subject(tmp_path, "{load: {scales: a.json}}"))


def test_transform_reads_the_overrides_that_keep_layers_out_and_no_others(tmp_path: Path) -> None:
    overrides = (
        "[{match: {names: [a]}, set: {activation: int16}},"
        " {match: {roles: [head]}, set: {activation: int16, equivalent_transformation: false}}]"
    )
    assert parameters.of_transform(
        subject(tmp_path, "{equivalent_transformation: {smoothing: 0.3}}", overrides)
    ) == {"smoothing": 0.3, "layer_overrides": [
        {"match": {"roles": ["head"]}, "set": {"equivalent_transformation": False}}
    ]}  # fmt: skip
    assert parameters.of_transform(subject(tmp_path, "{equivalent_transformation: {smoothing: true}}")) == {}
    assert parameters.of_transform(subject(tmp_path, "{equivalent_transformation: {smoothing: false}}")) == {
        "smoothing": False
    }


def test_every_selector_reaches_the_stages(tmp_path: Path) -> None:
    match = "{names: [a], patterns: [b*], op_types: [Conv], roles: [head], subgraph: {from: [x]}}"
    (entry,) = parameters.of_calibrate(
        subject(tmp_path, "{}", f"[{{match: {match}, set: {{weights: int4, fuse: false}}}}]")
    )["layer_overrides"]
    assert entry == {
        "match": {
            "names": ["a"],
            "patterns": ["b*"],
            "op_types": ["Conv"],
            "roles": ["head"],
            "subgraph": {"from": ["x"]},
        },
        "set": {"weights": "int4", "fuse": False},
    }


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("{}", None),
        ("{lane: fp16, tuning: {level: none, judge: true}, hessian: false, bias_correction: none, mod: false}", None),
        ("{weights: {granularity: per_channel, group_size: 32}, calibration: {method: auto, asymmetric: true}}", None),
        ("{calibration: {method: percentile, percentile: 0.99}}", ["calibration.method"]),
        ("{calibration: {asymmetric: false, granularity: per_channel}}", ["calibration.asymmetric"]),
        ("{weights: {bits: 8, granularity: per_group, group_size: 16, symmetric: false}}",
         ["weights.bits", "weights.granularity", "weights.symmetric"]),
        ("{hessian: true, search_weight_scale: {candidates: 4}, bias_correction: empirical}",
         ["search_weight_scale", "hessian", "bias_correction"]),
        ("{mod: {learn: [rounding, zero_point]}}", ["mod", "mod.learn.rounding", "mod.learn.zero_point"]),
        ("{tuning: {level: best, max_int16: 3, held_out: 0.5, judge: false}}",
         ["tuning.level", "tuning.max_int16", "tuning.judge", "tuning.held_out"]),
        ("{tuning: {max_int16: 0}}", None),
        ("{equivalent_transformation: {}}", ["equivalent_transformation"]),
        ("{equivalent_transformation: false}", None),
        ("{load: {scales: a.json}}", ["load.scales"]),
    ],
)  # fmt: skip
def test_check_reads_where_something_is_asked_of_the_whole_model(
    tmp_path: Path, text: str, places: list[str] | None
) -> None:
    assert parameters.of_check(subject(tmp_path, text)).get("asked") == places


def test_smoothing_is_asked_for_where_it_is_written(tmp_path: Path) -> None:
    """Whatever its value: what a transformation brings along by itself is no demand."""
    block = "{equivalent_transformation: {smoothing: %s}}"
    place = "$.quant_config.equivalent_transformation.smoothing"
    for value, places in (("0.5", ["smoothing"]), ("true", ["smoothing"]), ("false", [])):
        made = subject(tmp_path, block % value)
        recipe = replace(made.target.recipe, positions={place: "r.yaml:1:1"})
        written = replace(made, target=replace(made.target, recipe=recipe))
        found = parameters.of_check(written)["asked"]
        assert found == ["equivalent_transformation", *(f"equivalent_transformation.{name}" for name in places)]


def test_another_value_at_the_same_place_checks_nothing_anew(tmp_path: Path) -> None:
    first, second = (
        subject(tmp_path, f"{{calibration: {{method: {method}}}, hessian: {{damping: {damping}}}}}")
        for method, damping in (("mse", 0.01), ("entropy", 0.02))
    )
    assert parameters.of_check(first) == parameters.of_check(second)


@pytest.mark.parametrize(
    ("lines", "tuned"),
    [
        ("quant_config: {lane: fp16}", False),
        ("quant_config: {lane: fp16, bits: {op_types: {Conv: int8}}}", True),
        ("quant_config: {lane: fp16, bits: {op_types: {Conv: float32}}}", False),
        ("quant_config: {lane: fp16}\nlayer_overrides: [{match: {names: [a]}, set: {activation: int16}}]", True),
        ("quant_config: {lane: fp16}\nlayer_overrides: [{match: {names: [a]}, set: {activation: float32}}]", False),
        ("quant_config: {lane: fp16_a8w8}", True),
        ("quant_config: {lane: a8w8, tuning: {level: none}}", False),
    ],
)
def test_whatever_is_computed_in_integers_is_tuned(tmp_path: Path, lines: str, tuned: bool) -> None:
    (made,) = subjects(tmp_path, RECIPE + lines + "\n", platforms="[generic]")
    assert parameters.tunes(made) == tuned


def test_overrides_of_one_platform_follow_the_recipes_and_know_their_place(tmp_path: Path) -> None:
    asked = subject(tmp_path, "{}", "[{match: {names: [a]}, set: {activation: int16}}]")
    own = convert.platform_options({"layer_overrides": [{"match": {"names": ["b"]}, "set": {"activation": "int8"}}]})
    for platform, place in (("generic", "platform_options.generic"), ("a+b", 'platform_options["a+b"]')):
        target = replace(
            asked.target,
            platform=replace(asked.target.platform, name=platform),
            recipe=replace(asked.target.recipe, platform_options={platform: own, "other": own}),
        )
        assert parameters.of_calibrate(replace(asked, target=target))["layer_overrides"] == [
            {"match": {"names": ["a"]}, "set": {"activation": "int16"}},
            {"match": {"names": ["b"]}, "set": {"activation": "int8"}, "path": f"{place}.layer_overrides[0]"},
        ]
