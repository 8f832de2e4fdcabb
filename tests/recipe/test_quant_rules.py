"""Rules between the keys of quant_config and layer_overrides, and what no stage carries out yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.recipe.loader import load_recipe
from npubake.recipe.quant_config import Mod
from npubake.recipe.quant_rules import LEAST_JUDGED, quant_rules
from npubake.tuning.splitting import LEAST_SAMPLES
from tests.recipe.writing import SMALL, write


def override(**change: Any) -> dict[str, Any]:
    return {"layer_overrides": [{"match": {"names": ["a"]}, "set": change}]}


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"quant_config": {"calibration": {"percentile": 0.99}}}, ("quant_config", "calibration", "percentile")),
        (
            {"quant_config": {"calibration": {"method": "mse", "percentile": 0.99}}},
            ("quant_config", "calibration", "percentile"),
        ),
        (override(percentile=0.99), ("layer_overrides", 0, "set", "percentile")),
        ({"quant_config": {"weights": {"group_size": 16}}}, ("quant_config", "weights", "group_size")),
        (override(group_size=16), ("layer_overrides", 0, "set", "group_size")),
        (
            {
                "platform_options": {
                    "generic": {"layer_overrides": [{"match": {"names": ["x"]}, "set": {"group_size": 16}}]}
                }
            },
            ("platform_options", "generic", "layer_overrides", 0, "set", "group_size"),
        ),
        (
            {"quant_config": {"lane": "a16w16", "weights": {"granularity": "per_group"}}},
            ("quant_config", "weights", "granularity"),
        ),
        (override(granularity="per_group", weights="int16"), ("layer_overrides", 0, "set", "granularity")),
        (
            {
                "quant_config": {"equivalent_transformation": False},
                **override(equivalent_transformation=False),
            },
            ("layer_overrides", 0, "set", "equivalent_transformation"),
        ),
        (
            {
                "quant_config": {"tuning": {"level": "none"}},
                **override(equivalent_transformation=False),
            },
            ("layer_overrides", 0, "set", "equivalent_transformation"),
        ),
        (
            {
                "quant_config": {
                    "equivalent_transformation": {
                        "cross_layer_equalization": False,
                        "smoothing": False,
                    }
                }
            },
            ("quant_config", "equivalent_transformation"),
        ),
        ({"quant_config": {"tuning": {"level": "none", "max_int16": 4}}}, ("quant_config", "tuning", "max_int16")),
        (
            {"quant_config": {"tuning": {"judge": False, "held_out": 0.2}, "hessian": True}},
            ("quant_config", "tuning", "held_out"),
        ),
        ({"quant_config": {"tuning": {"level": "none", "judge": True}}}, ("quant_config", "tuning", "judge")),
        (
            {"quant_config": {"tuning": {"level": "none", "judge": True}, "bias_correction": "none"}},
            ("quant_config", "tuning", "judge"),
        ),
        ({"quant_config": {"tuning": {"judge": False}}}, ("quant_config", "tuning", "judge")),
        (
            {"quant_config": {"tuning": {"judge": False, "level": "best"}, "hessian": True}},
            ("quant_config", "tuning", "level"),
        ),
        (
            {"quant_config": {"tuning": {"judge": False, "max_int16": 3}, "hessian": True}},
            ("quant_config", "tuning", "max_int16"),
        ),
        (
            {"quant_config": {"tuning": {"level": "best"}}, "calibration": {"samples": 3}},
            ("quant_config", "tuning", "level"),
        ),
        (
            {"quant_config": {"search_weight_scale": True, "weights": {"symmetric": False}}},
            ("quant_config", "search_weight_scale"),
        ),
        (
            {"quant_config": {"weights": {"symmetric": False}}, **override(search_weight_scale=True)},
            ("layer_overrides", 0, "set", "search_weight_scale"),
        ),
        (
            {"quant_config": {"mod": {"learn": ["rounding", "zero_point"]}, "calibration": {"asymmetric": False}}},
            ("quant_config", "mod", "learn", 1),
        ),
        (
            {"quant_config": {"mod": {"learn": ["weight_scale"]}, "weights": {"symmetric": False}}},
            ("quant_config", "mod", "learn", 0),
        ),
        (
            {"quant_config": {"mod": {"learn": ["weight_scale"]}, "weights": {"granularity": "per_tensor"}}},
            ("quant_config", "mod", "learn", 0),
        ),
        (
            {
                "quant_config": {
                    "mod": {"learn": ["activation_scale"]},
                    "tuning": {"level": "none"},
                    "load": {"scales": "a.json"},
                }
            },
            ("quant_config", "mod", "learn", 0),
        ),
        (
            {"quant_config": {"tuning": {"level": "none"}, "load": {"scales": "a.json"}}, **override(method="mse")},
            ("layer_overrides", 0, "set", "method"),
        ),
        (
            {"quant_config": {"save_sample": True, "load": {"samples": "a.npz"}}},
            ("quant_config", "save_sample"),
        ),
        ({"quant_config": {"load": {"samples": "a.npz", "missing": "refuse"}}}, ("quant_config", "load", "missing")),
        ({"quant_config": {"load": {"scales": "a.json"}}}, ("quant_config", "load", "scales")),
        (
            {
                "quant_config": {
                    "equivalent_transformation": {},
                    "load": {"scales": "a.json"},
                    "tuning": {"level": "none"},
                }
            },
            ("quant_config", "load", "scales"),
        ),
        (
            {
                "quant_config": {
                    "calibration": {"method": "mse"},
                    "load": {"scales": "a.json"},
                    "tuning": {"level": "none"},
                }
            },
            ("quant_config", "calibration", "method"),
        ),
    ],
)
def test_what_contradicts_itself_is_refused_at_its_place(data: dict[str, Any], place: tuple[str | int, ...]) -> None:
    assert [found for found, _, _ in quant_rules(data)] == [place]


@pytest.mark.parametrize(
    "data",
    [
        {"quant_config": {"calibration": {"method": "percentile", "percentile": 0.99}}},
        {"quant_config": {"lane": "w4a16", "weights": {"granularity": "per_group", "group_size": 16}}},
        {"quant_config": {"weights": {"bits": 4, "granularity": "per_group"}}},
        {"quant_config": {"weights": {"granularity": "per_group"}}},
        override(weights="int4", granularity="per_group", group_size=16),
        {
            "quant_config": {"equivalent_transformation": {"smoothing": 0}},
            **override(equivalent_transformation=False),
        },
        {"quant_config": {"tuning": {"level": "none", "held_out": 0.2}, "hessian": True}},
        {"quant_config": {"tuning": {"level": "best", "max_int16": 0}}},
        {"quant_config": {"tuning": {"level": "best"}}, "calibration": {"samples": 4}},
        {"quant_config": {"tuning": {"judge": False}}, **override(hessian=True)},
        {"quant_config": {"tuning": {"judge": False, "level": "none"}, "mod": True}},
        {"quant_config": {"weights": {"symmetric": False}, "search_weight_scale": False}},
        {
            "quant_config": {"mod": {"learn": ["weight_scale"]}, "weights": {"granularity": "per_tensor"}},
            **override(granularity="per_channel"),
        },
        {
            "quant_config": {"mod": {"learn": ["zero_point"]}, "calibration": {"asymmetric": False}},
            **override(asymmetric=True),
        },
        {"quant_config": {"bias_correction": "none"}, **override(bias_correction="analytic")},
        {"quant_config": {"bias_correction": "empirical"}, **override(bias_correction="empirical")},
        override(bias_correction="analytic"),
        override(bias_correction="empirical"),
        {"quant_config": {"bias_correction": "empirical"}, **override(bias_correction="analytic")},
        {"quant_config": {"load": {"scales": "a.json"}, "tuning": {"level": "none"}}},
        {
            "quant_config": {
                "calibration": {"method": "mse"},
                "load": {"scales": "a.json", "missing": "calibrate"},
                "tuning": {"level": "none"},
            }
        },
    ],
)
def test_what_fits_together_is_taken(data: dict[str, Any]) -> None:
    assert list(quant_rules(data)) == []


def test_a_granularity_takes_an_inherited_group_size_away(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", SMALL + "quant_config: {weights: {granularity: per_group, group_size: 16}}\n")
    text = "version: 1\nextends: base.yaml\nquant_config: {weights: {granularity: per_tensor}}\n"
    weights = load_recipe(write(tmp_path, "r.yaml", text)).quant_config.weights
    assert (weights.granularity, weights.group_size) == ("per_tensor", 32)


def test_a_name_of_the_wrong_form_is_told_with_the_form(tmp_path: Path) -> None:
    text = SMALL + "quant_config:\n  bits:\n    op_types: {softmax: int16}\n    roles: {heads: int16}\n"
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, "r.yaml", text))
    first, second = caught.value.faults
    assert (first.path, first.where.rsplit(":", 2)[1:]) == ("$.quant_config.bits.op_types.softmax", ["8", "16"])
    assert "capital" in first.hint
    assert (second.path, "'head'" in second.hint) == ("$.quant_config.bits.roles.heads", True)


@pytest.mark.parametrize(("written", "read"), [("true", Mod()), ("{}", Mod()), ("false", None)])
def test_mod_is_switched_like_any_other_step(tmp_path: Path, written: str, read: Mod | None) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", f"{SMALL}quant_config: {{mod: {written}}}\n"))
    assert recipe.quant_config.mod == read


def test_fewer_examples_than_tune_judges_on_are_too_few() -> None:
    assert LEAST_JUDGED == LEAST_SAMPLES
