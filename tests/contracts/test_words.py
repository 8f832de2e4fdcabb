"""The two halves import nothing of each other, so a few lists of words stand in both: here they are held together."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

from npubake.calibration import arrays, images
from npubake.fixedpoint.colour import IMAGE_DIVISOR, RUNTIME_TYPES
from npubake.fixedpoint.remove_edges import REMOVABLE
from npubake.graph import edge_checks, model_file, roles, transforming
from npubake.graph.baseline import DEFAULT_COSINE
from npubake.quant import parameters, request, weight_formats
from npubake.quant.lanes import LANES, parse_lane
from npubake.quant.thresholds import METHODS
from npubake.recipe import data, model_data, presets, quant_config, recipe
from npubake.tuning import settings
from npubake.tuning.hessian import HessianSettings
from npubake.tuning.learning import LearningSettings
from npubake.tuning.moments import POSITIONS
from npubake.tuning.searching import SEARCHED
from npubake.verify import gates


def test_files_that_are_listed_are_the_files_that_are_read() -> None:
    assert data.KINDS["images"] == images.SUFFIXES
    assert tuple(suffix for kind in ("npy", "npz", "pt") for suffix in data.KINDS[kind]) == arrays.SUFFIXES


def test_lanes_have_the_same_names_and_spellings() -> None:
    known = set(quant_config.LANE_SPELLINGS) - {"platform"}
    spellings = {text: quant_config.LANE_SPELLINGS[text] for text in known}
    assert set(spellings.values()) == set(LANES)
    assert {text: parse_lane(text).name for text in spellings} == spellings


def test_choices_of_a_quantiser() -> None:
    assert set(get_args(quant_config.Method)) == set(METHODS)
    assert set(get_args(quant_config.Granularity)) == set(get_args(weight_formats.Granularity))
    assert set(get_args(quant_config.Precision)) == set(get_args(parameters.Precision))


def test_integers_of_lanes_have_the_same_bits() -> None:
    bits = {"int4": 4, "int8": 8, "int16": 16}
    integers = {name: {lane.general, *lane.op_types.values()} & bits.keys() for name, lane in LANES.items()}
    made = {name: (bits[kinds.pop()], bits[LANES[name].weights]) for name, kinds in integers.items() if kinds}
    assert made == quant_config.INTEGER_BITS


def test_the_largest_file_is_the_same() -> None:
    assert model_data.MAX_BYTES == model_file.MAX_PROTOBUF_BYTES


def test_steps_of_tuning_have_the_same_names_and_defaults() -> None:
    assert quant_config.STEPS == request.STEPS
    assert quant_config.TUNED_STEPS == request.TUNED_STEPS
    assert set(get_args(quant_config.Level)) == set(settings.MAX_INT16) == set(get_args(settings.Level))
    assert quant_config.Tuning().held_out == settings.HELD_OUT
    assert quant_config.Hessian().positions == POSITIONS
    assert quant_config.ScaleSearch().candidates == SEARCHED
    plain, known = quant_config.Hessian(), HessianSettings()
    assert (plain.block_size, plain.damping, plain.act_order) == (known.block_size, known.damping, known.act_order)
    asked, transform = quant_config.EquivalentTransformation(), transforming.Settings()
    assert all(getattr(transform, entry.name) == getattr(asked, entry.name) for entry in fields(asked))
    mod, learning = quant_config.Mod(), LearningSettings()
    assert (mod.epochs, mod.learning_rate, mod.schedule) == (
        learning.epochs,
        learning.learning_rate,
        learning.schedule,
    )
    assert get_args(quant_config.BiasCorrection) == get_args(request.BiasCorrection)
    assert set(get_args(quant_config.Role)) == set(roles.ROLES)


def test_runtime_inputs_and_removals_have_the_same_names() -> None:
    assert get_args(recipe.RuntimeType) == RUNTIME_TYPES
    assert set(edge_checks.RUNTIME_TYPES) == set(RUNTIME_TYPES)
    assert tuple(REMOVABLE) == edge_checks.REMOVABLE
    assert presets.DIVISOR == IMAGE_DIVISOR


def test_every_boundary_of_a_recipe_has_a_suspect_and_a_first_action() -> None:
    assert {*recipe.DEFAULT_GATES, "product"} <= set(gates.BOUNDARIES)
    assert recipe.ModelSource(path=Path()).baseline_cosine == DEFAULT_COSINE
