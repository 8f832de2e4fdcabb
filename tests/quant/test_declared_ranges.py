"""quant: ranges that are stated: by name, by the preset of pictures, by the source model."""

from __future__ import annotations

from dataclasses import replace

from npubake.graph.summary import TensorFact
from npubake.quant.declared_ranges import declared_ranges
from tests.graph.summaries import summary

PICTURES = {"range": [0, 1], "channels": 3, "layout": "NCHW"}


def test_picture_inputs_are_found_by_their_channels() -> None:
    assert declared_ranges({"image_inputs": PICTURES}, summary()) == {"images": [0, 1]}
    assert declared_ranges({"image_inputs": PICTURES | {"channels": 1}}, summary()) == {}
    assert declared_ranges({}, summary()) == {}


def test_a_range_by_name_goes_before_that_of_pictures() -> None:
    params = {"image_inputs": PICTURES, "input_ranges": {"images": [-1, 1]}}
    assert declared_ranges(params, summary()) == {"images": [-1, 1]}


def test_a_picture_input_is_found_by_the_layout_that_the_recipe_states() -> None:
    turned = {**summary().tensors, "images": TensorFact(shape=(1, 640, 480, 3), dtype="float32")}
    graph = replace(summary(), tensors=turned)
    assert declared_ranges({"image_inputs": PICTURES}, graph) == {}
    assert declared_ranges({"image_inputs": PICTURES | {"layouts": {"images": "NHWC"}}}, graph) == {"images": [0, 1]}


def test_what_the_source_model_declared_stands_below_the_recipe() -> None:
    graph = replace(summary(), declared={"images": (0.0, 2.0), "stem_relu": (0.0, 6.0)})
    assert declared_ranges({}, graph) == {"images": [0.0, 2.0], "stem_relu": [0.0, 6.0]}
    assert declared_ranges({"image_inputs": PICTURES}, graph) == {"images": [0, 1], "stem_relu": [0.0, 6.0]}
