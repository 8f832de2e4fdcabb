"""A recipe laid on another: the laws of merging, against plain dictionaries, and what a child can take away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.document.schema import schema_text
from npubake.document.tree import Mark, Node
from npubake.errors import RecipeError
from npubake.recipe.extending import laid_on
from npubake.recipe.loader import load_recipe
from npubake.recipe.recipe import Gate, Recipe
from tests.recipe.writing import SMALL, write

VALUES = st.recursive(
    st.integers(0, 9), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner)
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), VALUES)


def tree(value: Any, file: str) -> Node:
    mark = Mark(file=file, line=1, column=1)
    if isinstance(value, dict):
        return Node(value={name: tree(child, file) for name, child in value.items()}, mark=mark)
    if isinstance(value, list):
        return Node(value=[tree(child, file) for child in value], mark=mark)
    return Node(value=value, mark=mark)


@given(MAPPINGS, MAPPINGS)
def test_merging_keeps_the_laws(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = laid_on(tree(base, "base"), tree(over, "over")).plain()
    assert set(merged) == {*base, *over}
    for name, value in merged.items():
        if name not in over:
            assert value == base[name]
        elif isinstance(over[name], dict) and isinstance(base.get(name), dict):
            assert value == laid_on(tree(base[name], ""), tree(over[name], "")).plain()
        else:
            assert value == over[name]


def test_places_stay_those_of_their_files() -> None:
    merged = laid_on(tree({"a": {"x": 1, "y": [1]}}, "base"), tree({"a": {"y": [2]}}, "over"))
    assert merged.find(("a", "x")).mark.file == "base"
    assert merged.find(("a", "y", 0)).mark.file == "over"
    assert merged.find(("a", "z", 4)).mark.file == "over"  # the deepest that exists


PERCENTILE_OVERRIDE = """\
quant_config: {calibration: {method: percentile}}
layer_overrides: [{match: {names: [a]}, set: {percentile: 0.9}}]"""


def child(folder: Path, base: str, own: str) -> Recipe:
    write(folder, "_base.yaml", SMALL + base + "\n")
    return load_recipe(write(folder, "child.yaml", f"version: 1\nextends: _base.yaml\n{own}\n"))


def test_a_method_takes_the_inherited_percentile_away(tmp_path: Path) -> None:
    base = "quant_config: {lane: a8w8, calibration: {method: percentile, percentile: 0.999, asymmetric: false}}"
    found = child(tmp_path, base, "quant_config: {calibration: {method: minmax}}").quant_config
    assert (found.lane, found.calibration.method, found.calibration.asymmetric) == ("a8w8", "minmax", False)
    found = child(tmp_path, base, "quant_config: {calibration: {method: percentile}}").quant_config
    assert found.calibration.percentile == 0.9999
    found = child(tmp_path, base, "quant_config: {calibration: {asymmetric: true}}").quant_config
    assert found.calibration.percentile == 0.999


def test_a_type_takes_the_inherited_range_away_and_a_kind_the_fill(tmp_path: Path) -> None:
    base = "runtime_input: {x: {type: nv12, range: full}}"
    assert child(tmp_path, base, "runtime_input: {x: {type: rgb}}").runtime_inputs["x"].range is None
    resize = "preset: {name: yolo_640, resize: {kind: letterbox, size: [64, 64], fill: 0}}"
    write(tmp_path, "_base.yaml", SMALL.replace("preset: classification", resize))
    own = "version: 1\nextends: _base.yaml\npreset: {resize: {kind: resize_exact}}\n"
    recipe = load_recipe(write(tmp_path, "child.yaml", own))
    assert recipe.preprocessing.resize is not None
    assert (recipe.preprocessing.resize.size, recipe.preprocessing.resize.fill) == ((64, 64), None)


def test_null_takes_an_inherited_key_away(tmp_path: Path) -> None:
    base = "metric: {name: top1, data: v}\nremove: {inputs: [Quantize]}\ngates: {quantized: {cosine: 0.5, sqnr_db: 3}}"
    recipe = child(tmp_path, base, "metric: null\nremove: {inputs: null}\ngates: {quantized: null}")
    assert (recipe.metric, recipe.remove.inputs) == (None, ())
    assert recipe.gates["quantized"] == Gate(cosine=0.99, sqnr_db=20)


def test_a_null_threshold_is_a_value(tmp_path: Path) -> None:
    recipe = child(tmp_path, "gates: {quantized: {cosine: 0.5, sqnr_db: 3}}", "gates: {quantized: {cosine: null}}")
    assert recipe.gates["quantized"] == Gate(cosine=None, sqnr_db=3)


def test_thresholds_alone_may_be_null() -> None:
    def nullable(schema: Any, place: tuple[str, ...]) -> set[tuple[str, ...]]:
        found = {place[:1]} if "null" in schema.get("type", ()) else set()
        return found.union(*(nullable(each, (*place, name)) for name, each in schema.get("properties", {}).items()))

    assert nullable(json.loads(schema_text("recipe")), ()) == {("gates",)}


@pytest.mark.parametrize(
    ("own", "path"),
    [
        ("metric: null", "$.metric"),
        ("quant_config: {lane: null}", "$.quant_config.lane"),
        ("remove: {inputs: [null]}", "$.remove.inputs[0]"),
    ],
)
def test_a_null_that_takes_nothing_away_is_refused(tmp_path: Path, own: str, path: str) -> None:
    with pytest.raises(RecipeError) as caught:
        child(tmp_path, "", own)
    fault = caught.value.faults[0]
    assert (fault.path, fault.where.split(":")[0]) == (path, str(tmp_path / "recipes" / "child.yaml"))
    assert fault.hint


@pytest.mark.parametrize(
    ("base", "own", "path", "place"),
    [
        (
            PERCENTILE_OVERRIDE,
            "quant_config: {calibration: {method: minmax}}",
            "$.layer_overrides[0].set.percentile",
            "3:38",
        ),
        (
            "toolchain_options: {qualcomm: {io: quantized}}",
            "quant_config: {lane: fp16}",
            "$.toolchain_options.qualcomm.io",
            "3:22",
        ),
    ],
)
def test_a_conflict_is_placed_where_it_arises(tmp_path: Path, base: str, own: str, path: str, place: str) -> None:
    with pytest.raises(RecipeError) as caught:
        child(tmp_path, base, own)
    (fault,) = caught.value.faults
    assert (fault.path, fault.where) == (path, f"{tmp_path / 'recipes' / 'child.yaml'}:{place}")


@pytest.mark.parametrize("stated", ["platform: j6p", "platforms: [j6p, j6e]"])
def test_options_of_platforms_that_are_built_no_longer_go(tmp_path: Path, stated: str) -> None:
    base = "platform_options: {generic: {core_num: 1}, j6p: {core_num: 2}}"
    made = child(tmp_path, base.replace("j6p: {core_num: 2}", ""), stated)
    assert dict(made.platform_options) == {}
    base = "platforms: [generic, j6p]\n" + base
    write(tmp_path, "both.yaml", SMALL.replace("platforms: [generic]\n", "") + base + "\n")
    made = load_recipe(write(tmp_path, "one.yaml", f"version: 1\nextends: both.yaml\n{stated}\n"))
    assert {name: options.core_num for name, options in made.platform_options.items()} == {"j6p": 2}


def test_options_that_the_recipe_itself_states_stay_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        child(tmp_path, "description: x", "platform: j6p\nplatform_options: {generic: {core_num: 1}}")
    assert [fault.path for fault in caught.value.faults] == ["$.platform_options.generic"]


def test_a_fault_of_the_base_alone_stays_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        child(tmp_path, "quant_config: {calibration: {percentile: 0.999}}", "description: x")
    assert caught.value.faults[0].where.startswith(str(tmp_path / "recipes" / "_base.yaml"))
