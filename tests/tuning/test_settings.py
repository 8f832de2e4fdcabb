"""tuning: what a recipe asks of each step, globally and by layer; defaults are the schema's."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.recipe.quant_config import ScaleSearch, Tuning
from npubake.tuning.searching import SEARCHED
from npubake.tuning.settings import HELD_OUT, TuneSettings

GROUPS = ["a", "b", "c"]


def read(params: dict[str, Any], *overrides: tuple[dict[str, Any], tuple[str, ...]]) -> TuneSettings:
    entries = [{"match": {"names": list(names)}, "set": change} for change, names in overrides]
    return TuneSettings.from_params(params, GROUPS, entries, [names for _, names in overrides])


def test_defaults_are_those_of_the_recipe() -> None:
    settings, stated = read({}), Tuning()
    assert (settings.level, settings.judge, settings.held_out) == (stated.level, stated.judge, stated.held_out)
    assert stated.held_out == HELD_OUT
    assert ScaleSearch().candidates == SEARCHED
    assert (settings.max_int16, settings.limited) == (2, False)
    assert read({"tuning": {"level": "best"}}).max_int16 == 8
    assert read({"tuning": {"max_int16": 5}}).limited


@pytest.mark.parametrize(
    ("params", "overrides", "asked", "free"),
    [
        ({}, (), set(), {"a", "b", "c"}),
        ({"hessian": {}}, (), {"a", "b", "c"}, {"a", "b", "c"}),
        ({"hessian": False}, (), set(), set()),
        ({}, (({"hessian": True}, ("b",)),), {"b"}, {"a", "b", "c"}),
        ({"hessian": {}}, (({"hessian": False}, ("b", "c")), ({"hessian": True}, ("c",))), {"a", "c"}, {"a", "c"}),
        ({"hessian": False}, (({"hessian": True}, ("b",)),), {"b"}, {"b"}),
        ({"hessian": {}}, (({"activation": "int16"}, ("b",)),), {"a", "b", "c"}, {"a", "b", "c"}),
    ],
)
def test_later_words_win(params: dict[str, Any], overrides: Any, asked: set[str], free: set[str]) -> None:
    choice = read(params, *overrides).choices["hessian"]
    assert choice.among(GROUPS, free=False) == asked
    assert choice.among(GROUPS, free=True) == free


def test_words_of_bias_correction() -> None:
    assert read({"bias_correction": "none"}).choices["bias_correction"].among(GROUPS, free=True) == frozenset()
    choice = read({"bias_correction": "empirical"}).choices["bias_correction"]
    assert choice.saying("empirical") == choice.asked == {"a", "b", "c"}


def test_each_layer_has_its_own_way_of_bias_correction() -> None:
    choice = read(
        {"bias_correction": "analytic"},
        ({"bias_correction": "empirical"}, ("a", "b")),
        ({"bias_correction": "none"}, ("b",)),
    ).choices["bias_correction"]
    assert [set(choice.saying(word)) for word in ("empirical", "analytic")] == [{"a"}, {"c"}]
    assert choice.forbidden == {"b"}
    alone = read({}, ({"bias_correction": "empirical"}, ("a",))).choices["bias_correction"]
    assert alone.saying("empirical") == alone.asked == {"a"}
    assert alone.saying("analytic") == frozenset()
