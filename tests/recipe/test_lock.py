"""The lock: written, compared, refused; the frozen preset wins as long as the recipe asks for the same."""

from __future__ import annotations

import hashlib
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


def build(recipe: Recipe, tools: dict[str, str] = TOOLS, policy: lock.Policy = "plain") -> lock.Applied:
    """What a build does: choose the lock, and write it where that is due."""
    found = lock.choose(recipe, tools, policy)
    if found.due:
        lock.write(found.lock, lock.lock_path(recipe))
    return found


def edited(recipe: Recipe, old: str, new: str) -> Recipe:
    text = recipe.file.read_text()
    assert old in text
    return load_recipe(write(recipe.file.parent.parent, "r.yaml", text.replace(old, new)))


def test_a_plain_build_writes_a_missing_lock_and_then_is_exact(recipe: Recipe) -> None:
    first = build(recipe)
    assert (first.due, first.why, first.differences) == (True, "", ())
    text = lock.lock_path(recipe).read_bytes()
    again = build(recipe)
    assert (again.due, again.differences, again.frozen_wins) == (False, (), False)
    assert lock.lock_path(recipe).read_bytes() == text
    assert lock.read(lock.lock_path(recipe)) == lock.compute(recipe, TOOLS)
    assert [file.name for file in recipe.file.parent.iterdir() if file.suffix != ".yaml"] == ["r.lock"]


def test_choosing_alone_writes_nothing(recipe: Recipe) -> None:
    assert lock.choose(recipe, TOOLS).due
    assert lock.choose(recipe, TOOLS, "update").due
    assert not lock.lock_path(recipe).exists()


def test_the_digest_is_that_of_the_file_used(recipe: Recipe) -> None:
    first, path = build(recipe), lock.lock_path(recipe)
    assert first.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text(json.dumps(json.loads(path.read_text())))  # the same facts, laid out by someone else
    assert lock.choose(recipe, TOOLS).digest == hashlib.sha256(path.read_bytes()).hexdigest() != first.digest


def test_other_tools_are_told_and_leave_the_file_alone(recipe: Recipe) -> None:
    build(recipe)
    text = lock.lock_path(recipe).read_bytes()
    found = build(recipe, {**TOOLS, "pillow": "12.0.0", "onnx": "1.18"})
    assert [str(each) for each in found.differences] == [
        '$.tools.onnx: null -> "1.18"',
        '$.tools.pillow: "11.0.0" -> "12.0.0"',
    ]
    assert lock.lock_path(recipe).read_bytes() == text


def test_the_frozen_preset_wins_over_a_shipped_one_that_moved(recipe: Recipe) -> None:
    build(recipe)
    moved = replace(recipe, preprocessing=replace(recipe.preprocessing, version=2, channels="bgr"))
    found = build(moved)
    assert (found.frozen_wins, found.due) == (True, False)
    assert found.preprocessing == recipe.preprocessing
    assert {each.path for each in found.differences} == {"$.preset.version", "$.preset.channels"}


@pytest.mark.parametrize(
    "asked",
    [
        "preset: yolo_1280",
        "preset: {name: yolo_640, channels: bgr}",
        "preprocess: {channels: rgb, scale: {divide_by: 255}}",
    ],
)
def test_another_request_is_frozen_anew_unless_locked(recipe: Recipe, asked: str) -> None:
    build(recipe)
    other = edited(recipe, "preset: yolo_640", asked)
    with pytest.raises(RecipeError):
        lock.choose(other, TOOLS, "locked")
    found = build(other)
    assert (found.due, found.why) == (True, "the recipe asks for another preprocessing")
    assert found.preprocessing == other.preprocessing != recipe.preprocessing
    assert lock.read(lock.lock_path(recipe)) == lock.compute(other, TOOLS)
    assert not build(other, policy="locked").due


def test_locked_refuses_every_difference_with_one_hint(recipe: Recipe) -> None:
    with pytest.raises(RecipeError) as caught:
        build(recipe, policy="locked")
    assert "no lock" in caught.value.faults[0].what
    build(recipe)
    newer = {**TOOLS, "numpy": "2.2.0", "pillow": "12.0.0"}
    with pytest.raises(RecipeError) as caught:
        build(recipe, newer, "locked")
    assert ["$.tools" in fault.what for fault in caught.value.faults] == [True, True]
    assert [bool(fault.hint) for fault in caught.value.faults] == [False, True]
    assert build(recipe, newer, "update").lock.tools == newer
    assert not build(recipe, newer, "update").due
    assert build(recipe, newer, "locked").differences == ()


def test_tiny_numbers_survive(recipe: Recipe) -> None:
    small = replace(recipe, preprocessing=replace(recipe.preprocessing, mean=(1e-7, 0.1, 0.2), std=(1.0, 1.0, 1.0)))
    build(small)
    assert build(small, policy="locked").preprocessing.mean == (1e-7, 0.1, 0.2)


@pytest.mark.parametrize("damage", ["{", "[]", "cut", "unknown", "typed"])
def test_a_damaged_lock_is_refused_until_it_is_rewritten(recipe: Recipe, damage: str) -> None:
    build(recipe)
    path = lock.lock_path(recipe)
    data = json.loads(path.read_text())
    if damage == "cut":
        del data["preset"]["crop"]
    data.update({"unknown": {"extra": 1}, "typed": {"tools": {"numpy": 2}}}.get(damage, {}))
    path.write_text(damage if damage in ("{", "[]") else json.dumps(data))
    with pytest.raises(RecipeError) as caught:
        build(recipe)
    assert "--update-lock" in caught.value.faults[-1].hint
    assert build(recipe, policy="update").due
