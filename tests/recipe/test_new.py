"""The recipe that ``new`` writes loads as it stands, whatever the model looks like."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.recipe.loader import load_recipe
from npubake.recipe.new import ModelDescription, TensorDescription, recipe_name, recipe_text
from npubake.recipe.quant_config import QuantConfig
from npubake.recipe.recipe import ModelInput, Recipe
from tests.recipe.writing import write


def tensor(name: str, *shape: int | str) -> TensorDescription:
    return TensorDescription(name=name, shape=shape, dtype="float32")


def loaded(folder: Path, name: str, *inputs: TensorDescription) -> Recipe:
    model = ModelDescription(path="../models/m.onnx", inputs=inputs, outputs=(tensor("out", 1, 10),))
    return load_recipe(write(folder, "new.yaml", recipe_text(name, model)))


@pytest.mark.parametrize(
    ("shape", "name", "channels", "size"),
    [
        ((1, 3, 640, 640), "yolo_640", "rgb", (640, 640)),
        ((1, 3, 1280, 1280), "yolo_1280", "rgb", (1280, 1280)),
        ((1, 3, 192, 256), "custom", "rgb", (192, 256)),
        ((1, 192, 256, 3), "custom", "rgb", (192, 256)),
        (("N", 1, 28, 28), "custom", "gray", (28, 28)),
    ],
)
def test_a_picture_input(
    tmp_path: Path, shape: tuple[int | str, ...], name: str, channels: str, size: tuple[int, int]
) -> None:
    recipe = loaded(tmp_path, "x", tensor("image", *shape))
    found = recipe.preprocessing
    assert (found.name, found.channels) == (name, channels)
    assert found.resize is not None
    assert found.resize.size == size
    layout = "NHWC" if shape[-1] == 3 else "NCHW"
    assert (found.layout, recipe.model.inputs["image"].layout) == (layout, layout)


def test_nothing_is_asked_of_quantisation_that_would_shut_out_what_tuning_tries(tmp_path: Path) -> None:
    assert loaded(tmp_path, "x", tensor("image", 1, 3, 8, 8)).quant_config == QuantConfig()


def test_several_inputs_are_prepared_tensors(tmp_path: Path) -> None:
    recipe = loaded(tmp_path, "x", tensor("image", 1, 3, 8, 8), tensor("ids", 1, "length"))
    assert recipe.preprocessing.name == "classification"
    assert recipe.model.inputs == {"image": ModelInput(shape=(1, 3, 8, 8)), "ids": ModelInput(shape=(1, 1))}


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
SIZES = st.integers(1, 4096) | NAMES


@given(NAMES, st.dictionaries(NAMES, st.lists(SIZES, max_size=5), min_size=1, max_size=3))
def test_any_names_and_shapes_load(name: str, inputs: dict[str, list[int | str]]) -> None:
    with TemporaryDirectory() as folder:
        described = [tensor(key, *shape) for key, shape in inputs.items()]
        recipe = loaded(Path(folder), name, *described)
    assert recipe.name == recipe_name(name)
    assert {key: list(entry.shape or ()) for key, entry in recipe.model.inputs.items()} == {
        key: [size if isinstance(size, int) else 1 for size in shape] for key, shape in inputs.items()
    }


@pytest.mark.parametrize(("text", "name"), [("My Model (v2)", "My_Model_v2"), ("…", "model"), ("a/b", "a_b")])
def test_names(text: str, name: str) -> None:
    assert recipe_name(text) == name
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)
