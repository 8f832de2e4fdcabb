"""``toolchain_options.qualcomm``: a closed list, and what contradicts the rest of the recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.errors import Fault, RecipeError
from npubake.recipe.loader import load_recipe
from tests.recipe.writing import SMALL, write

TEXT = SMALL.replace("[generic]", "[qcs9075]")
AT = "$.toolchain_options.qualcomm"


def faults(folder: Path, more: str) -> tuple[Fault, ...]:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(folder, "r.yaml", f"{TEXT}{more}\n"))
    return caught.value.faults


@pytest.mark.parametrize(
    "options",
    [
        "{road: sdk, sdk: {converter: qnn, encodings: '0.6.1'}}",
        "{io: float, optimization: 1, vtcm_mb: 4, cpu_nodes: [a, b], emulated_examples: 2, quantiser: aimet}",
        "{road: wheel, io: quantized}",
    ],
)
def test_what_may_be_said(tmp_path: Path, options: str) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", f"{TEXT}toolchain_options: {{qualcomm: {options}}}\n"))
    assert recipe.toolchain_options["qualcomm"]


@pytest.mark.parametrize(
    ("options", "path", "hint"),
    [
        ("{optimisation: 3}", f"{AT}.optimisation", "'optimization'"),
        ("{vtcm: 4}", f"{AT}.vtcm", "'vtcm_mb'"),
        ("{road: dlc}", f"{AT}.road", "wheel"),
        ("{optimization: 4}", f"{AT}.optimization", "3"),
        ("{optimization: 0}", f"{AT}.optimization", "1"),
        ("{vtcm_mb: 0}", f"{AT}.vtcm_mb", "at least 1"),
        ("{vtcm_mb: 1.5}", f"{AT}.vtcm_mb", "whole number"),
        ("{cpu_nodes: []}", f"{AT}.cpu_nodes", "at least 1"),
        ("{cpu_nodes: [a, a]}", f"{AT}.cpu_nodes", "once"),
        ("{quantiser: aimmet}", f"{AT}.quantiser", "'aimet'"),
        ("{road: sdk, sdk: {encodings: 1.0}}", f"{AT}.sdk.encodings", "1.0.0"),
        ("{road: sdk, sdk: {convertor: qnn}}", f"{AT}.sdk.convertor", "'converter'"),
    ],
)
def test_an_unknown_key_or_value_is_refused_at_its_line(tmp_path: Path, options: str, path: str, hint: str) -> None:
    (fault,) = faults(tmp_path, f"toolchain_options: {{qualcomm: {options}}}")
    assert fault.path == path
    assert ":6:" in fault.where
    assert hint in fault.hint


@pytest.mark.parametrize(
    ("more", "paths"),
    [
        ("quant_config: {lane: fp16}\ntoolchain_options: {qualcomm: {io: quantized}}", [f"{AT}.io"]),
        (
            "quant_config: {lane: fp16}\ntoolchain_options: {qualcomm: {io: quantized, quantiser: aimet}}",
            [f"{AT}.io", f"{AT}.quantiser"],
        ),
        ("toolchain_options: {qualcomm: {sdk: {converter: qnn}}}", [f"{AT}.sdk"]),
        ("toolchain_options: {qualcomm: {road: wheel, sdk: {converter: qnn}}}", [f"{AT}.sdk"]),
        ("toolchain_options: {qualcomm: {road: sdk, cpu_nodes: [a]}}", [f"{AT}.cpu_nodes"]),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, more: str, paths: list[str]) -> None:
    found = faults(tmp_path, more)
    assert [fault.path for fault in found] == paths
    assert all(fault.hint for fault in found)


def test_a_lane_over_inherited_options_is_told_where_it_is_said(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", f"{TEXT}toolchain_options: {{qualcomm: {{io: quantized}}}}\n")
    path = write(tmp_path, "over.yaml", "version: 1\nextends: base.yaml\nquant_config: {lane: fp16}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert [fault.where for fault in caught.value.faults] == [f"{path}:3:22"]
