"""quant: ranges and scales of an earlier build, taken over by name."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.errors import RecipeError, StageError
from npubake.quant.affine import tensor_parameters
from npubake.quant.loading import (
    LoadedScales,
    loaded_range,
    moved_scales,
    moved_warnings,
    overlaid,
    read_scales,
    require_all,
)
from npubake.quant.parameters import QuantizationParameters, TensorParameters, WeightParameters
from npubake.quant.ranges import Range, snapped
from npubake.quant.thresholds import Threshold

ENDS = st.floats(2.0**-20, 2.0**20, width=32)


@given(low=ENDS, high=ENDS, dtype=st.sampled_from(["uint8", "int16"]), asymmetric=st.booleans())
def test_what_a_build_made_is_made_again(low: float, high: float, dtype: str, asymmetric: bool) -> None:
    span = snapped(Range(low=-low, high=high))
    entry = tensor_parameters(span, "uint8" if dtype == "uint8" else "int16", asymmetric=asymmetric)
    again, flag = loaded_range(entry)
    made = tensor_parameters(again, entry.dtype, asymmetric=flag)
    assert (made.scale, made.zero_point) == (entry.scale, entry.zero_point)


@given(scale=st.floats(2.0**-20, 2.0**10, width=32), zero_point=st.integers(0, 255))
def test_a_scale_off_the_grid_moves_up_by_a_thousandth_at_most(scale: float, zero_point: int) -> None:
    entry = TensorParameters(dtype="uint8", scale=scale, zero_point=zero_point, low=0.0, high=0.0)
    span, asymmetric = loaded_range(entry)
    made = tensor_parameters(span, "uint8", asymmetric=asymmetric)
    exact = Fraction(scale)
    for end, code in ((span.low, -zero_point), (span.high, 255 - zero_point)):
        assert abs(Fraction(end)) >= abs(exact * code) * (1 - Fraction(1, 2**20))
        assert abs(Fraction(end)) <= abs(exact * code) * (1 + Fraction(1, 2**9))
    if asymmetric:  # a zero point of 128 is a symmetric range: its scale is absmax / 127
        assert exact * (1 - Fraction(1, 2**20)) <= Fraction(made.scale) <= exact * (1 + Fraction(1, 2**9))
        assert abs(made.zero_point - zero_point) <= 1


def entry(scale: float = 0.5, zero_point: int = 0, high: float = 127.5) -> TensorParameters:
    return TensorParameters(dtype="uint8", scale=scale, zero_point=zero_point, low=0.0, high=high)


def scales(missing: str = "refuse", **tensors: TensorParameters) -> LoadedScales:
    return LoadedScales(tensors=tensors, weights={}, missing="refuse" if missing == "refuse" else "calibrate")


def test_loaded_ranges_take_the_place_of_others() -> None:
    ranges = {"a": Range(low=-1.0, high=1.0), "b": Range(low=0.0, high=2.0)}
    thresholds = {name: Threshold(asymmetric=False) for name in ranges}
    spans, chosen = overlaid(ranges, thresholds, scales(a=entry(), c=entry()))
    assert spans == {"a": Range(low=0.0, high=127.5), "b": ranges["b"]}
    assert (chosen["a"].asymmetric, chosen["b"].asymmetric) == (True, False)
    assert overlaid(ranges, thresholds, None) == (ranges, thresholds)


def test_tensors_that_are_not_named_are_refused_unless_they_may_be_calibrated() -> None:
    with pytest.raises(StageError) as caught:
        require_all(["a", "b"], scales(a=entry()))
    assert (caught.value.faults[0].path, "'b'" in caught.value.faults[0].what) == ("$.quant_config.load.scales", True)
    require_all(["a", "b"], scales("calibrate", a=entry()))
    require_all(["a"], scales(a=entry()))
    require_all(["a"], None)


def test_every_move_is_told_with_its_reason() -> None:
    loaded = scales(same=entry(), wide=entry(), off=entry(scale=0.3, high=1.0), shared=entry())
    wide = TensorParameters(dtype="int16", scale=0.5, zero_point=0, low=-1.0, high=1.0)
    made = {name: entry(scale=0.75, high=191.25) for name in ("off", "shared")}
    moved = moved_scales({**made, "same": entry(), "wide": wide, "new": entry()}, {}, loaded)
    why = {item.name: item.why for item in moved}
    assert set(why) == {"off", "shared", "wide"}
    assert "int16" in why["wide"]
    assert "ten mantissa bits" in why["off"]
    assert "shares its scale" in why["shared"]
    (told, *_) = moved_warnings(moved)
    assert '"scale": 0.3' in told
    assert len(moved_warnings(moved * 5)) == 11


def test_weights_that_come_out_otherwise_are_told() -> None:
    weights = WeightParameters(initializer="w", dtype="int8", axis=0, scales=(0.1, 0.2), divisors=(3, 5))
    loaded = LoadedScales(tensors={}, weights={"g": weights})
    assert moved_scales({}, {"g": weights}, loaded) == ()
    (moved,) = moved_scales({}, {"g": replace(weights, scales=(0.1, 0.3))}, loaded)
    assert moved.name == "g"


def test_files_that_hold_no_scales_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "parameters.json"
    for text in ("[]", "{}", "no json", json.dumps({"tensors": 3})):
        path.write_text(text)
        with pytest.raises(RecipeError):
            read_scales(path, "refuse")
    tensors = {"a": entry(), "b": entry(scale=0.0), "c": entry(zero_point=256), "d": entry(scale=float(np.inf))}
    parameters = QuantizationParameters(graph_digest="", lane="a8w8", tensors=tensors, groups={}, weights={})
    parameters.save(path)
    with pytest.raises(RecipeError) as caught:
        read_scales(path, "refuse")
    assert [fault.what.split(":")[0] for fault in caught.value.faults] == ["b", "c", "d"]
    replace(parameters, tensors={"a": entry()}).save(path)
    assert read_scales(path, "calibrate").tensors == {"a": entry()}
