"""quant: predicted errors against errors of the very values, and against sums that are known exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.calibration.statistics import BUCKETS, TensorStatistics
from npubake.quant.expected_error import expected_error, expected_float16_error
from npubake.quant.parameters import IntegerType, TensorParameters

Values = NDArray[np.float32]


def counted(values: Values) -> TensorStatistics:
    return TensorStatistics(
        minimum=float(values.min()) + 0.0,
        maximum=float(values.max()) + 0.0,
        count=values.size,
        buckets=np.bincount(values.view(np.uint32) >> 18, minlength=BUCKETS).astype(np.int64),
    )


def grid(dtype: IntegerType, scale: float, zero_point: int) -> TensorParameters:
    return TensorParameters(dtype=dtype, scale=scale, zero_point=zero_point, low=0.0, high=0.0)


def measured(values: Values, parameters: TensorParameters) -> tuple[float, float]:
    """(mean squared error, SQNR in dB) value by value in float64."""
    low, high = {"uint8": (0, 255), "int16": (-32768, 32767)}[parameters.dtype]
    wide = values.astype(np.float64)
    codes = np.clip(np.rint(wide / parameters.scale) + parameters.zero_point, low, high)
    error = float(np.mean((wide - parameters.scale * (codes - parameters.zero_point)) ** 2))
    return error, 10 * math.log10(float(np.mean(wide**2)) / error)


GENERATOR = np.random.default_rng(21)
DATA = {
    "normal": GENERATOR.normal(size=50_000),
    "behind_a_relu": np.maximum(GENERATOR.normal(size=50_000), 0),
    "relu6": np.clip(GENERATOR.normal(3, 3, size=50_000), 0, 6),
    "heavy": GENERATOR.standard_t(3, size=50_000),
    "small_beside_large": np.concatenate([GENERATOR.normal(0, 1e-3, size=50_000), [4.0, -2.0]]),
}


@pytest.mark.parametrize("name", sorted(DATA))
@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point"),
    [("uint8", 6 / 255, 0), ("uint8", 8 / 255, 128), ("uint8", 0.2, 100), ("int16", 1e-4, 0)],
)
def test_the_prediction_is_near_what_the_values_lose(
    name: str, dtype: IntegerType, scale: float, zero_point: int
) -> None:
    """Within 0.1 dB on 50,000 values: half of a percent is the buckets' even spread, the rest chance."""
    values = DATA[name].astype(np.float32)
    parameters = grid(dtype, scale, zero_point)
    predicted = expected_error(counted(values), parameters)
    error, sqnr = measured(values, parameters)
    assert predicted.error == pytest.approx(error, rel=0.03)
    assert predicted.sqnr_db == pytest.approx(sqnr, abs=0.1)


def test_a_bucket_of_evenly_spread_values_is_exact() -> None:
    """1 <= x < 1 + 1/32 with a step of 1/40: the integral of the sawtooth, by exact rationals."""
    values = np.array([1.0, np.nextafter(np.float32(1 + 1 / 32), np.float32(0))], np.float32)
    found = expected_error(counted(values), grid("uint8", 1 / 40, 0))
    low, high, step = Fraction(float(values[0])), Fraction(float(values[1])), Fraction(1 / 40)
    cuts = [low, *(step * (2 * k + 1) / 2 for k in range(39, 43) if low < step * (2 * k + 1) / 2 < high), high]
    total = Fraction(0)
    for start, stop in pairwise(cuts):
        code = step * round((start + stop) / 2 / step)
        total += ((stop - code) ** 3 - (start - code) ** 3) / 3
    assert len(cuts) > 2
    assert found.rounding == pytest.approx(float(total / (high - low)), rel=1e-9)
    assert found.clipping == 0.0


def test_single_values_lose_exactly_what_they_lose() -> None:
    """0 has a code; 6.0 is 255 steps of 6/255; 7.0 is clipped by one."""
    zeros = np.zeros(10, np.float32)
    assert expected_error(counted(zeros), grid("uint8", 0.1, 0)).error == 0.0
    assert expected_error(counted(zeros), grid("uint8", 0.1, 0)).sqnr_db == math.inf
    sixes = expected_error(counted(np.full(10, 6.0, np.float32)), grid("uint8", 6 / 255, 0))
    assert sixes.error < 1e-30
    sevens = expected_error(counted(np.full(10, 7.0, np.float32)), grid("uint8", 6 / 255, 0))
    assert sevens.clipping == pytest.approx(1.0, rel=1e-12)
    assert sevens.rounding == 0.0
    assert sevens.signal == 49.0
    assert sevens.sqnr_db == pytest.approx(10 * math.log10(49), rel=1e-12)


def test_clipping_at_both_ends_is_the_integral_of_the_distance() -> None:
    """Two buckets at the ends of -2..2, all of them outside -1..1."""
    values = np.array([-2.0, 2.0], np.float32)
    found = expected_error(counted(values), grid("int16", 1 / 32767, 0))
    assert found.clipping == pytest.approx(1.0, rel=1e-4)  # int16 reaches -32768 steps below


@settings(max_examples=80)
@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50),
    st.floats(1e-3, 10),
    st.integers(0, 255),
)
def test_an_error_is_never_above_what_the_worst_place_in_its_bucket_gives(
    data: list[float], scale: float, zero_point: int
) -> None:
    """Rounding at most half a step, clipping at most the distance of the farthest value."""
    values = np.array(data, np.float32) + np.float32(0)
    found = expected_error(counted(values), grid("uint8", scale, zero_point))
    lowest, highest = -scale * zero_point, scale * (255 - zero_point)
    farthest = max(float(values.max()) - highest, lowest - float(values.min()), 0.0)
    assert 0.0 <= found.rounding <= scale * scale / 4 * (1 + 1e-9)
    assert 0.0 <= found.clipping <= farthest**2 * (1 + 1e-9)


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e-5, 1e-7])
def test_float16_agrees_with_rounding_the_values(scale: float) -> None:
    values = (np.random.default_rng(3).normal(size=50_000) * scale).astype(np.float32)
    wide = values.astype(np.float64)
    error = float(np.mean((wide - values.astype(np.float16).astype(np.float64)) ** 2))
    found = expected_float16_error(counted(values))
    assert found.rounding == pytest.approx(error, rel=0.08)
    assert found.sqnr_db == pytest.approx(10 * math.log10(float(np.mean(wide**2)) / error), abs=0.35)


def test_float16_overflows_where_numpy_says_so() -> None:
    for value, over in ((65504.0, False), (65519.0, False), (65520.0, True), (-1e6, True)):
        array = np.array([value], np.float32)
        with np.errstate(over="ignore"):
            assert bool(np.isinf(array.astype(np.float16)[0])) == over
        assert math.isinf(expected_float16_error(counted(array)).error) == over
    assert expected_float16_error(counted(np.array([70000.0], np.float32))).sqnr_db == -math.inf


def test_nothing_counted_is_refused() -> None:
    empty = TensorStatistics(minimum=0.0, maximum=0.0, count=0, buckets=np.zeros(BUCKETS, np.int64))
    with pytest.raises(ValueError, match="counted"):
        expected_error(empty, grid("uint8", 1.0, 0))
    with pytest.raises(ValueError, match="counted"):
        expected_float16_error(empty)
