"""The vendor's preset table, written here a second time from its document, and the form it is expanded to."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.recipe.convert import preprocessing
from npubake.recipe.loader import load_recipe
from npubake.recipe.presets import PRESETS, Preprocessing
from tests.recipe.writing import SMALL, write

PREPARED: dict[str, Any] = {
    "version": 1,
    "decode": None,
    "channels": None,
    "resize": None,
    "crop": None,
    "scale": None,
    "mean": None,
    "std": None,
    "mean_domain": "0-1",
    "layout": "NCHW",
    "input_dtype": "float32",
}


def pictures(kind: str, size: int, fill: int | None) -> dict[str, Any]:
    resize = {"kind": kind, "size": [size, size], "interpolation": "bilinear", "backend": "pillow", "fill": fill}
    return {
        **PREPARED,
        "decode": "pillow",
        "channels": "rgb",
        "resize": resize,
        "scale": {"divide_by": 255},
        "input_dtype": "uint8",
    }


EXPANDED = {
    "classification": PREPARED,
    "detection": PREPARED,
    "vision_transformer": PREPARED,
    "yolo_640": pictures("letterbox", 640, 114),
    "yolo_1280": pictures("letterbox", 1280, 114),
    "classification_torchvision": {
        **pictures("resize_exact", 256, None),
        "crop": {"size": [224, 224]},
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    },
    "llm": {**PREPARED, "sequence": {"sequence_length": 4096, "cache_length": 4096, "axes": {}, "padded": False}},
    "llm_fast": {**PREPARED, "sequence": {"sequence_length": 4096, "cache_length": 4096, "axes": {}, "padded": True}},
    "multimodal": {**PREPARED, "sequence": {"sequence_length": None, "cache_length": None, "axes": {}, "padded": True}},
}


def test_the_table_is_the_vendors() -> None:
    assert {name: preset.expanded() for name, preset in PRESETS.items()} == {
        name: {"name": name, **entry} for name, entry in EXPANDED.items()
    }


@pytest.mark.parametrize("name", PRESETS)
def test_the_expanded_form_reads_back(name: str) -> None:
    assert Preprocessing.from_expanded(PRESETS[name].expanded()) == PRESETS[name]


def test_input_ranges_follow_from_the_linear_step() -> None:
    assert PRESETS["classification"].input_range() is None
    assert PRESETS["yolo_640"].input_range() == (0.0, 1.0)
    pairs = [("0.485", "0.229"), ("0.456", "0.224"), ("0.406", "0.225")]
    low = min((0 - Fraction(mean)) / Fraction(std) for mean, std in pairs)
    high = max((1 - Fraction(mean)) / Fraction(std) for mean, std in pairs)
    found = PRESETS["classification_torchvision"].input_range()
    assert found == pytest.approx((float(low), float(high)), rel=1e-15)


def test_the_range_of_pixels_that_are_not_scaled() -> None:
    assert preprocessing({"channels": "rgb"}, custom=True).input_range() == (0.0, 255.0)


def test_a_preset_is_changed_in_place() -> None:
    changed = preprocessing({"name": "yolo_640", "channels": "bgr"}, custom=False).expanded()
    assert changed == {**PRESETS["yolo_640"].expanded(), "channels": "bgr"}


def test_pictures_for_a_preset_of_prepared_tensors_are_decoded() -> None:
    changed = preprocessing({"name": "classification", "channels": "gray"}, custom=False)
    assert (changed.decode, changed.channels, changed.input_dtype) == ("pillow", "gray", "uint8")


def test_means_of_pixels_are_brought_to_0_1() -> None:
    request = {"channels": "rgb", "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
    found = preprocessing({**request, "mean_domain": "0-255"}, custom=True)
    assert found.mean == pytest.approx((0.485, 0.456, 0.406), rel=1e-12)
    assert found.std == pytest.approx((0.229, 0.224, 0.225), rel=1e-12)
    assert found.expanded()["mean_domain"] == "0-1"


SEQUENCES = {"name": "llm", "sequence_length": 8, "cache_length": 24, "axes": {"x": ["batch", "sequence", "total"]}}


def test_lengths_and_axes_are_expanded_and_read_back() -> None:
    made = preprocessing(SEQUENCES, custom=False)
    assert made.expanded()["sequence"] == {
        "sequence_length": 8,
        "cache_length": 24,
        "axes": {"x": ["batch", "sequence", "total"]},
        "padded": False,
    }
    assert Preprocessing.from_expanded(made.expanded()) == made


@pytest.mark.parametrize(
    ("preset", "places"),
    [
        ("llm", ["$.preset", "$.preset"]),
        ("multimodal", []),
        (SEQUENCES, []),
        ({**SEQUENCES, "cache_length": 0}, []),
        ({"name": "llm", "sequence_length": 8, "cache_length": 0, "axes": {"x": ["sequence"]}}, []),
        ({**SEQUENCES, "axes": {"x": ["batch", "sequence"]}}, ["$.preset.cache_length"]),
        ({"name": "llm_fast", "axes": {"x": ["cache"]}}, ["$.preset"]),
        ({"name": "multimodal", "axes": {"x": ["cache"]}}, ["$.preset.axes"]),
        ({"name": "multimodal", "sequence_length": 8}, ["$.preset.sequence_length"]),
        ({"name": "detection", "cache_length": 8}, ["$.preset.cache_length"]),
    ],
)
def test_lengths_need_axes_and_axes_lengths(tmp_path: Path, preset: object, places: list[str]) -> None:
    text = SMALL.replace("preset: classification", f"preset: {json.dumps(preset)}")
    path = write(tmp_path, "r.yaml", text)
    if not places:
        assert load_recipe(path).preprocessing.sequence is not None
        return
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert [fault.path for fault in caught.value.faults] == places
