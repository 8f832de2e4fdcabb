"""Grids of the HTP beside ONNX's own quantisers, and nearest Resize beside onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from npubake.quant.parameters import TensorParameters
from npubake.quant.ranges import Range
from npubake.toolchains.qualcomm.adapting.constants import constant_codes
from npubake.toolchains.qualcomm.adapting.grids import Grid, as_wide, of_parameters, of_range
from npubake.toolchains.qualcomm.adapting.resizing import sources, spelt_nearest
from tests.fixedpoint.builds import float_model, node, session


def real(codes: Any, grid: Grid) -> Any:
    return (np.asarray(codes, np.float64) - grid.zero_point) * grid.scale


def test_int16_is_uint16_on_the_same_grid() -> None:
    held = TensorParameters(dtype="int16", scale=0.5, zero_point=0, low=-16383.5, high=16383.5)
    codes = np.array([-32768, -1, 0, 7, 32767])
    made = of_parameters(held)
    assert (made.dtype, made.zero_point) == ("uint16", 32768)
    np.testing.assert_array_equal(real(codes + 32768, made), codes * 0.5)


def test_every_code_of_8_bits_has_one_of_16() -> None:
    narrow = of_range(Range(low=-1.25, high=3.0), 8, "statistics")
    wide = as_wide(narrow)
    codes = np.arange(256)
    np.testing.assert_allclose(real(codes * 257, wide), real(codes, narrow), rtol=1e-6, atol=1e-9)
    steps = np.rint(real(codes, narrow) / np.float32(wide.scale)) + wide.zero_point
    np.testing.assert_array_equal(steps, codes * 257)


@pytest.mark.parametrize("value", [0.1, -1.7, 0.0, 3.0e-7, 65504.0])
@pytest.mark.parametrize("bits", [8, 16])
def test_one_number_is_held_exactly(value: float, bits: Any) -> None:
    constant = np.array(value, np.float32)
    codes, grid = constant_codes(constant, bits)
    assert float(np.float32(grid.scale)) == grid.scale
    assert real(codes, grid) == float(constant)


def test_a_grid_implies_the_bounds_that_it_cannot_leave() -> None:
    grid = of_range(Range(low=0.0, high=6.0), 8, "parameters")
    assert grid.implies(0.0, 6.0)
    assert grid.implies(0.0, np.inf)
    assert not grid.implies(0.5, np.inf)
    assert not grid.implies(0.0, 5.9)


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize(("size", "scale"), [(6, 2.0), (5, 3.0), (8, 0.5)])
def test_nearest_positions_are_onnxruntimes(mode: str, rounding: str, size: int, scale: float) -> None:
    attributes = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": rounding}
    resize = node("Resize", "x - scales", "out", **attributes)
    held = {"scales": np.array([1, 1, 1, scale], np.float32)}
    count = int(size * scale)
    feed = {"x": np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)}
    expected = session(float_model([resize], {"x": [1, 1, 1, size]}, held, ["out"])).run(None, feed)[0]
    np.testing.assert_array_equal(sources(count, size, scale, mode, rounding), expected.reshape(-1))
    shapes = ([1, 1, 1, size], [1, 1, 1, count])
    nodes, constants = spelt_nearest(resize, shapes, [1, 1, 1, scale])
    made = float_model(nodes, {"x": shapes[0]}, {**held, **constants}, ["out"])
    np.testing.assert_array_equal(session(made).run(None, feed)[0], expected)
    assert {each.op_type for each in nodes} <= {"Resize", "Gather"}
    kept = {entry.name: helper.get_attribute_value(entry) for each in nodes for entry in each.attribute}
    assert kept.get("nearest_mode", b"floor") == b"floor"
