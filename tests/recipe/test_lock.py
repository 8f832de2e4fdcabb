"""The lock: written, compared, refused; the frozen preset wins as long as the recipe asks for the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from npubake.errors import RecipeError
from npubake.recipe import lock
from npubake.recipe.loader import load_recipe
from npubake.recipe.recipe import Recipe
from tests.recipe.writing import SMALL, write

TOOLS = {"numpy": "2.1.0", "pillow": "11.0.0"}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load_recipe(write(tmp_path, "r.yaml", SMALL.replace("preset: classification", "preset: yolo_640")))


def test_a_plain_build_writes_a_missing_lock_and_then_is_exact(recipe: Recipe) -> None:
    first = lock.apply(recipe, TOOLS)
    assert (first.written, first.differences) == (True, ())
    text = lock.lock_path(recipe).read_bytes()
    again = lock.apply(recipe, TOOLS)
    assert (again.written, again.differences, again.frozen_wins) == (False, (), False)
    assert lock.lock_path(recipe).read_bytes() == text
    assert lock.read(lock.lock_path(recipe)) == lock.compute(recipe, TOOLS)
    assert [file.name for file in recipe.file.parent.iterdir() if file.suffix != ".yaml"] == ["r.lock"]


def test_other_tools_are_told_and_leave_the_file_alone(recipe: Recipe) -> None:
    lock.apply(recipe, TOOLS)
    text = lock.lock_path(recipe).read_bytes()
    found = lock.apply(recipe, {**TOOLS, "pillow": "12.0.0", "onnx": "1.18"})
    assert [str(each) for each in found.differences] == [
        '$.tools.onnx: null -> "1.18"',
        '$.tools.pillow: "11.0.0" -> "12.0.0"',
    ]
    assert lock.lock_path(recipe).read_bytes() == text


def test_the_frozen_preset_wins_over_a_shipped_one_that_moved(recipe: Recipe) -> None:
    lock.apply(recipe, TOOLS)
    moved = replace(recipe, preprocessing=replace(recipe.preprocessing, version=2, channels="bgr"))
    found = lock.apply(moved, TOOLS)
    assert found.frozen_wins
    assert found.preprocessing == recipe.preprocessing
    assert {each.path for each in found.differences} == {"$.preset.version", "$.preset.channels"}


def test_a_recipe_that_asks_for_something_else_gets_it(recipe: Recipe) -> None:
    lock.apply(recipe, TOOLS)
    write(recipe.file.parent.parent, "r.yaml", recipe.file.read_text().replace("yolo_640", "yolo_1280"))
    edited = load_recipe(recipe.file)
    found = lock.apply(edited, TOOLS)
    assert (found.frozen_wins, found.preprocessing.name) == (False, "yolo_1280")
    assert "$.request" in {each.path for each in found.differences}


def test_update_rewrites_and_locked_accepts_only_the_same(recipe: Recipe) -> None:
    with pytest.raises(RecipeError) as caught:
        lock.apply(recipe, TOOLS, "locked")
    assert "no lock" in caught.value.faults[0].what
    lock.apply(recipe, TOOLS)
    newer = {**TOOLS, "numpy": "2.2.0"}
    with pytest.raises(RecipeError) as caught:
        lock.apply(recipe, newer, "locked")
    assert ["$.tools.numpy" in fault.what for fault in caught.value.faults] == [True]
    assert lock.apply(recipe, newer, "update").lock.tools == newer
    assert lock.apply(recipe, newer, "locked").differences == ()


def test_tiny_numbers_survive(recipe: Recipe) -> None:
    small = replace(recipe, preprocessing=replace(recipe.preprocessing, mean=(1e-7, 0.1, 0.2), std=(1.0, 1.0, 1.0)))
    lock.apply(small, TOOLS)
    assert lock.apply(small, TOOLS, "locked").preprocessing.mean == (1e-7, 0.1, 0.2)


@pytest.mark.parametrize("damage", ["{", "[]", "cut", "unknown", "typed"])
def test_a_damaged_lock_is_refused_until_it_is_rewritten(recipe: Recipe, damage: str) -> None:
    lock.apply(recipe, TOOLS)
    path = lock.lock_path(recipe)
    data = json.loads(path.read_text())
    if damage == "cut":
        del data["preset"]["crop"]
    data.update({"unknown": {"extra": 1}, "typed": {"tools": {"numpy": 2}}}.get(damage, {}))
    path.write_text(damage if damage in ("{", "[]") else json.dumps(data))
    with pytest.raises(RecipeError) as caught:
        lock.apply(recipe, TOOLS)
    assert "--update-lock" in caught.value.faults[-1].hint
    assert lock.apply(recipe, TOOLS, "update").written
