"""Targets of recipes, and what people may type for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.errors import RecipeError, UsageError
from npubake.platforms import load_platforms
from npubake.recipe.loader import load_recipe
from npubake.recipe.targets import Catalogue, Lane, load_catalogue, resolve, targets
from tests.recipe.writing import SMALL, write

ROOT = Path(__file__).resolve().parents[2]
PLATFORMS = load_platforms(ROOT)


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    write(tmp_path, "yolo_640.yaml", SMALL.replace("[generic]", "[j6e, j6p]"))
    write(tmp_path, "board.yaml", SMALL.replace("platforms: [generic]", "platform: j6p"))
    write(tmp_path, "broken.yaml", SMALL + "x: 1\n")
    return load_catalogue(tmp_path)


def names(*asked: str, catalogue: Catalogue, toolchain: str | None = None) -> list[str]:
    return [target.name for target in resolve(list(asked), catalogue, toolchain)]


def test_the_names_of_targets(catalogue: Catalogue) -> None:
    assert list(catalogue.targets) == ["board", "yolo_640_j6e", "yolo_640_j6p"]
    assert list(catalogue.broken) == ["broken"]


def test_a_toolchain_that_is_not_the_default_is_in_the_name(tmp_path: Path) -> None:
    text = SMALL.replace("[generic]", "[j6p]")
    stated = {
        name: load_recipe(write(tmp_path, "r.yaml", text + f"toolchain: {name}\n")) for name in ("horizon", "reference")
    }
    assert [target.name for target in targets(stated["horizon"], PLATFORMS)] == ["r_j6p_horizon"]
    (plain,) = targets(stated["reference"], PLATFORMS)
    assert (plain.name, plain.toolchain_decided_by) == ("r_j6p", "recipe")
    (asked,) = targets(stated["reference"], PLATFORMS, "horizon")
    assert (asked.name, asked.toolchain_decided_by) == ("r_j6p_horizon", "command line")


def test_who_decided_the_lane(tmp_path: Path) -> None:
    text = SMALL.replace("[generic]", "[j6e, j6p]")
    lanes = [target.lane for target in targets(load_recipe(write(tmp_path, "r.yaml", text)), PLATFORMS)]
    assert lanes == [
        Lane(value="a8w8", decided_by="platform"),
        Lane(value="fp16_a8w8", decided_by="platform"),
    ]
    text += "quant_config: {lane: w8a16}\n"
    (first, _) = targets(load_recipe(write(tmp_path, "r.yaml", text)), PLATFORMS)
    assert first.lane == Lane(value="a16w8", decided_by="recipe")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["yolo_640"], ["yolo_640_j6e", "yolo_640_j6p"]),
        (["yolo_640_j6p"], ["yolo_640_j6p"]),
        (["board,yolo_640_j6e"], ["board", "yolo_640_j6e"]),
        (["board, yolo_640", "yolo_640_j6p"], ["board", "yolo_640_j6e", "yolo_640_j6p"]),
        (["yolo_640_j6p_horizon"], ["yolo_640_j6p_horizon"]),
        (["board_horizon"], ["board_horizon"]),
    ],
)
def test_what_may_be_typed(catalogue: Catalogue, asked: list[str], found: list[str]) -> None:
    assert names(*asked, catalogue=catalogue) == found


def test_the_command_lines_toolchain_renames(catalogue: Catalogue) -> None:
    assert names("yolo_640", catalogue=catalogue, toolchain="horizon") == [
        "yolo_640_j6e_horizon",
        "yolo_640_j6p_horizon",
    ]
    with pytest.raises(RecipeError) as caught:
        names("board", catalogue=catalogue, toolchain="mobilint")
    assert caught.value.faults[0].where == "--toolchain"


@pytest.mark.parametrize("asked", [[], [""], [","], ["board,"], [" "]])
def test_an_empty_name_is_refused(catalogue: Catalogue, asked: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        names(*asked, catalogue=catalogue)
    assert "yolo_640" in caught.value.faults[0].hint


def test_misspelt_names_are_refused_together_with_the_nearest(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError) as caught:
        names("yolo_640_j6q,baord", catalogue=catalogue)
    assert ["'yolo_640_j6" in caught.value.faults[0].hint, "'board'" in caught.value.faults[1].hint] == [True, True]


def test_a_broken_recipe_stops_only_who_asks_for_it(catalogue: Catalogue) -> None:
    assert names("board", catalogue=catalogue) == ["board"]
    for asked in ("broken", "broken_generic"):
        with pytest.raises(RecipeError) as caught:
            names(asked, catalogue=catalogue)
        assert "$.x" in {fault.path for fault in caught.value.faults}


@pytest.mark.parametrize(
    "other",
    ["platform: j6p\nname: a_j6p\n", "platforms: [j6e]\nname: a_j6p\n", "platform: j6p\nname: a_j6p-fast\n"],
    ids=["two targets", "a target and a recipe", "a trial and a target"],
)
def test_names_that_collide_are_refused(tmp_path: Path, other: str) -> None:
    write(tmp_path, "a.yaml", SMALL.replace("[generic]", "[j6p]"))
    write(tmp_path, "b.yaml", SMALL.replace("platforms: [generic]\n", other))
    with pytest.raises(RecipeError) as caught:
        load_catalogue(tmp_path)
    assert [fault.path for fault in caught.value.faults] == ["$.name"]


@pytest.mark.parametrize(
    ("more", "path", "words"),
    [
        ("platforms: [j6e, j6q]", "$.platforms[1]", "'j6q'"),
        ("platform: j6q", "$.platform", "'j6q'"),
        ("platform: generic\ntoolchain: horizon", "$.toolchain", "generic"),
        ("platform: j6h\nplatform_options: {j6h: {core_num: 4}}", "$.platform_options.j6h.core_num", "at most 3"),
        ("platform: j6e\nplatform_options: {j6e: {max_l2m_size: 1MiB}}", "$.platform_options.j6e.max_l2m_size", "L2M"),
        ("platform: s6p\nplatform_options: {s6p: {max_l2m_size: 13MiB}}", "$.platform_options.s6p.max_l2m_size", "L2M"),
    ],
)
def test_what_a_platform_rules_out(tmp_path: Path, more: str, path: str, words: str) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL.replace("platforms: [generic]", more)))
    with pytest.raises(RecipeError) as caught:
        targets(recipe, PLATFORMS)
    (fault,) = caught.value.faults
    assert (fault.path, fault.where.startswith(str(recipe.file) + ":")) == (path, True)
    assert words in fault.what


def test_s6p_takes_its_own_cap(tmp_path: Path) -> None:
    more = "platform: s6p\nplatform_options: {s6p: {max_l2m_size: 12MiB}}"
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL.replace("platforms: [generic]", more)))
    (target,) = targets(recipe, PLATFORMS)
    assert target.options.max_l2m_bytes == 12 * 1024 * 1024


@given(st.lists(st.sampled_from(["yolo_640_j6e", "digits_vit", "digits_mobilenet_generic"]), min_size=1, max_size=5))
def test_each_target_comes_once_however_it_is_asked_for(asked: list[str]) -> None:
    shipped = SHIPPED
    assert resolve(",".join(asked), shipped) == resolve(asked, shipped)
    found = [target.name for target in resolve(asked, shipped)]
    assert len(found) == len(set(found))


SHIPPED = load_catalogue(ROOT)


def test_the_shipped_project() -> None:
    assert SHIPPED.broken == {}
    assert set(SHIPPED.recipes) >= {"yolo_640", "digits_mobilenet", "digits_vit", "decoder_block"}
    for name in ("yolo_640", "digits_mobilenet", "digits_vit"):
        made = {target.platform.name: target.toolchain for target in resolve(name, SHIPPED)}
        assert {made["qcs9075"], made["qcs8275"]} == {"qualcomm"}
    (pair,) = resolve("digits_mobilenet_pair", SHIPPED)
    assert pair.platform.soc_model.value == "77,82"
    (target,) = resolve("yolo_640_j6p", SHIPPED)
    assert target.lane == Lane(value="fp16_a8w8", decided_by="platform")
    assert target.toolchain == "reference"
    assert [t.platform.name for t in resolve("yolo_640", SHIPPED)][:6] == ["j6e", "j6m", "j6b", "j6h", "j6p", "s6p"]
    for recipe in SHIPPED.recipes.values():
        assert recipe.calibration.data is not None
        assert recipe.calibration.data.exists()
        if recipe.name != "decoder_block":  # logits of weights that nothing trained have no metric
            assert recipe.metric is not None
            assert recipe.metric.data.exists()


def test_one_binary_for_two_socs(tmp_path: Path) -> None:
    more = "platforms: [qcs9075, qcs9075+qcs8275]\nplatform_options: {qcs9075+qcs8275: {sdk: {bsp: a}}}"
    write(tmp_path, "r.yaml", SMALL.replace("platforms: [generic]", more))
    catalogue = load_catalogue(tmp_path)
    assert names("r", catalogue=catalogue) == ["r_qcs9075", "r_qcs9075-qcs8275"]
    (pair,) = resolve("r_qcs9075-qcs8275", catalogue, "qualcomm")
    assert (pair.platform.soc_model.value, pair.platform.march.value) == ("77,82", "v73,v75")
    assert pair.options.sdk.bsp == "a"
    assert (pair.toolchain, pair.lane.value) == ("qualcomm", "a8w8")


@pytest.mark.parametrize(
    ("more", "path", "what", "hint"),
    [
        ("platforms: [qcs9075+qcs8276]", "$.platforms[0]", "there is no platform 'qcs8276'", "'qcs8275'"),
        ("platform: qcs8275+qcs9075", "$.platform", "not in order", "'qcs9075+qcs8275'"),
        ("platforms: [generic, j6p+qcs9075]", "$.platforms[1]", "cannot share", "of its own"),
        (
            "platform: qcs9075+qcs8275\nplatform_options: {qcs9075+qcs8275: {output_no_padding: true}}",
            '$.platform_options["qcs9075+qcs8275"].output_no_padding',
            "pad nothing",
            "Horizon",
        ),
        (
            "platform: qcs6490\ntoolchain_options: {qualcomm: {vtcm_mb: 4}}",
            "$.toolchain_options.qualcomm.vtcm_mb",
            "has 2",
            "At most 2",
        ),
        (
            "platforms: [qcs9075, qcs6490]\ntoolchain_options: {qualcomm: {vtcm_mb: 8}}",
            "$.toolchain_options.qualcomm.vtcm_mb",
            "qcs6490",
            "At most 2",
        ),
        (
            "platforms: [j6p]\ntoolchain_options: {qualcomm: {vtcm_mb: 8}}",
            "$.toolchain_options.qualcomm",
            "no target",
            "qcs9075",
        ),
        (
            "platform: qcs9075\nplatform_options: {qcs9075: {core_num: 2}}",
            "$.platform_options.qcs9075.core_num",
            "1",
            "core",
        ),
        (
            "platform: qcs9075\nplatform_options: {qcs9075: {max_l2m_size: 1MiB}}",
            "$.platform_options.qcs9075.max_l2m_size",
            "L2M",
            "no L2M",
        ),
    ],
)
def test_what_a_qualcomm_platform_rules_out(tmp_path: Path, more: str, path: str, what: str, hint: str) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL.replace("platforms: [generic]", more)))
    with pytest.raises(RecipeError) as caught:
        targets(recipe, PLATFORMS)
    faults = [fault for fault in caught.value.faults if fault.path == path]
    assert [len(faults), len(caught.value.faults)] == [1, 1]
    assert what in faults[0].what
    assert hint in faults[0].hint
    assert faults[0].where.startswith(f"{recipe.file}:5") or faults[0].where.startswith(f"{recipe.file}:6")


def test_options_of_qualcomm_with_another_toolchain_asked_for_are_no_fault_of_the_recipe(tmp_path: Path) -> None:
    more = "platforms: [generic, qcs9075]\ntoolchain_options: {qualcomm: {vtcm_mb: 8}}"
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL.replace("platforms: [generic]", more)))
    assert [target.toolchain for target in targets(recipe, PLATFORMS)] == ["reference", "qualcomm"]


def test_a_pair_and_a_platform_of_its_targets_name_collide(tmp_path: Path) -> None:
    text = (ROOT / "platforms" / "qcs9075.yaml").read_text(encoding="utf-8")
    folder = tmp_path / "platforms"
    folder.mkdir()
    for name in ("qcs9075", "qcs8275"):
        (folder / f"{name}.yaml").write_text((ROOT / "platforms" / f"{name}.yaml").read_text(encoding="utf-8"))
    (folder / "qcs9075-qcs8275.yaml").write_text(text.replace("name: qcs9075", "name: qcs9075-qcs8275"))
    write(tmp_path, "r.yaml", SMALL.replace("[generic]", "[qcs9075+qcs8275, qcs9075-qcs8275]"))
    with pytest.raises(RecipeError) as caught:
        load_catalogue(tmp_path)
    assert "r_qcs9075-qcs8275" in caught.value.faults[0].what


def test_a_runtime_input_of_a_platforms_own_is_found_below_its_options(tmp_path: Path) -> None:
    pair, plain = "qcs9075+qcs8275", "runtime_input: {images: {type: nv12, range: full}}\n"
    own = f"platform_options: {{{pair}: {{runtime_input: {{images: {{type: rgb}}}}}}}}\n"
    text = SMALL.replace("[generic]", f"[qcs9075, {pair}]")
    single, both = targets(load_recipe(write(tmp_path, "r.yaml", text + plain + own)), PLATFORMS)
    path = "$.runtime_input.images.type"
    assert single.place(path) == path
    assert both.place(path) == f'$.platform_options["{pair}"].runtime_input.images.type'
    assert both.recipe.where(both.place(path)).split(":")[-2] == str(len((text + plain + own).splitlines()))
    assert both.place("$.runtime_input.other.type") == "$.runtime_input.other.type"
