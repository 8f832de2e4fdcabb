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
from tests.plan.test_plan import subjects


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
