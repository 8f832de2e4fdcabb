"""quant: the grid of exact rounding, against exact rational and integer arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.quant.weights import (
    ChannelWeights,
    accumulator_bounds,
    accumulator_scales,
    bias_bound_channels,
    channel_weights,
    grid_divisors,
    grid_scales,
    least_output_scale,
    quantize_bias,
    quantize_weights,
)

SCALES = st.floats(2.0**-24, 2.0**8, width=32)
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


def random_weights(seed: int, shape: tuple[int, ...], spread: float) -> NDArray[np.float32]:
    """Channels of very different size, as depthwise layers have."""
    generator = np.random.default_rng(seed)
    size = 10.0 ** generator.uniform(-spread, spread, shape[0])
    return (generator.normal(size=shape) * size.reshape(-1, *[1] * (len(shape) - 1))).astype(np.float32)


def facts_of(absmax: list[float], bias: list[float]) -> ChannelWeights:
    return ChannelWeights(absmax=np.array(absmax), bias=np.array(bias), shared=False)


@settings(max_examples=100)
@given(st.integers(0, 10**6), SHAPES, SCALES, SCALES, st.sampled_from([1, 15]))
def test_with_the_least_output_scale_the_grid_holds_and_no_weight_clips(
    seed: int, shape: tuple[int, ...], input_scale: float, output_scale: float, least: int
) -> None:
    weights = random_weights(seed, shape, 3.0)
    bias = random_weights(seed + 1, shape[:1], 3.0)
    facts = channel_weights(weights, 0, bias, "per_channel")
    scale = float(np.float32(max(output_scale, least_output_scale(input_scale, facts, least) * (1 + 2**-20))))
    divisors = grid_divisors(input_scale, scale, facts)
    scales = grid_scales(input_scale, scale, divisors)
    assert np.all(divisors % 2 == 1)
    assert divisors.min() >= least or not facts.absmax.all()
    assert divisors.max() <= 16383
    for channel, (divisor, value) in enumerate(zip(divisors, scales, strict=True)):
        exact = Fraction(scale) / (Fraction(input_scale) * int(divisor))
        assert abs(Fraction(float(value)) - exact) <= exact * Fraction(1, 2**53)
        largest = max(abs(Fraction(float(weight))) for weight in weights[channel].reshape(-1))
        assert largest / exact < Fraction(255, 2)  # rounds to at most 127
        following = Fraction(scale) / (Fraction(input_scale) * (int(divisor) + 2))
        room = Fraction(2**30) * Fraction(scale) / abs(Fraction(float(bias[channel])))
        assert int(divisor) == 16383 or largest / following > 127 * (1 - Fraction(1, 2**40)) or divisor + 2 > room
    codes = quantize_weights(weights, scales, 0)
    assert np.abs(codes.astype(int)).max() <= 127
    quantize_bias(bias, input_scale * scales)


@settings(max_examples=60)
@given(st.integers(0, 10**6), SHAPES, SCALES)
def test_each_weight_is_the_nearest_multiple_of_its_scale(
    seed: int, shape: tuple[int, ...], input_scale: float
) -> None:
    weights = random_weights(seed, shape, 2.0)
    facts = channel_weights(weights, 0, None, "per_channel")
    scales = accumulator_scales(input_scale, facts)
    codes = quantize_weights(weights, scales, 0)
    for index in np.ndindex(weights.shape):
        scale, code = Fraction(float(scales[index[0]])), int(codes[index])
        assert abs(Fraction(float(weights[index])) - code * scale) <= scale * (Fraction(1, 2) + Fraction(1, 2**40))


def test_an_output_scale_below_the_least_has_no_divisor() -> None:
    facts = facts_of([2.0, 1.0], [0.0, 0.0])
    least = least_output_scale(0.5, facts)
    assert least == pytest.approx(2.0 * 0.5 / 127)
    with pytest.raises(ValueError, match="channel 0 has no divisor"):
        grid_divisors(0.5, least * 0.99, facts)


def test_more_than_the_least_divisor_can_be_asked_for() -> None:
    facts = facts_of([2.0], [0.0])
    scale = least_output_scale(0.5, facts, 15) * (1 + 2**-20)
    assert grid_divisors(0.5, scale, facts).tolist() == [15]


def test_a_channel_without_weights_keeps_its_bias() -> None:
    facts = facts_of([0.0, 1.0], [3.0, 3.0])
    divisors = grid_divisors(0.01, 0.02, facts)
    assert divisors[0] == 127
    bias = quantize_bias(np.array([3.0, 3.0], np.float32), 0.01 * grid_scales(0.01, 0.02, divisors))
    assert int(bias[0]) == round(3.0 / (0.02 / 127))


def test_a_bias_beyond_int32_makes_its_channel_coarser_and_is_named() -> None:
    """The measured case: weights near 1e-7 beside a bias of 5 (quantisers that clip it lose the layer)."""
    weights = np.full((2, 3), 1e-7, np.float32)
    weights[1] = 0.5
    bias = np.array([5.0, 5.0], np.float32)
    facts = channel_weights(weights, 0, bias, "per_channel")
    scales = accumulator_scales(0.004, facts)
    codes = quantize_bias(bias, 0.004 * scales)
    assert np.abs(codes.astype(np.int64)).max() <= 2**30 + 2**6
    np.testing.assert_allclose(codes * 0.004 * scales, bias, rtol=1e-6)
    assert bias_bound_channels(0.004, facts) == [0]


def test_the_bias_limits_the_divisor_on_the_grid() -> None:
    facts = facts_of([1e-9], [2.0**20])
    divisors = grid_divisors(1.0, 0.25, facts)
    assert 2.0**20 / (0.25 / int(divisors[0])) <= 2**30
    assert 2.0**20 / (0.25 / int(divisors[0] + 2)) > 2**30


def test_a_weight_or_bias_that_would_not_fit_is_an_error_never_clipped() -> None:
    with pytest.raises(ValueError, match="clipped"):
        quantize_weights(np.array([[1.3]], np.float32), np.array([0.01]), 0)
    with pytest.raises(ValueError, match="int32"):
        quantize_bias(np.array([1.0], np.float32), np.array([1e-10]))


def test_per_tensor_gives_every_channel_the_widest_facts() -> None:
    facts = channel_weights(np.array([[1, -4], [2, 3]], np.float32), 0, np.array([7, -9], np.float32), "per_tensor")
    assert facts.absmax.tolist() == [4, 4]
    assert facts.bias.tolist() == [9, 9]
    assert len(set(grid_divisors(0.1, 0.2, facts).tolist())) == 1


def test_extremes_follow_the_channel_axis() -> None:
    weights = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4)
    for axis in range(3):
        expected = [
            max(abs(float(v)) for v in np.take(weights, c, axis).reshape(-1)) for c in range(weights.shape[axis])
        ]
        assert channel_weights(weights, axis, None, "per_channel").absmax.tolist() == expected


def test_a_grouped_transposed_bias_is_shared_by_the_channels_of_all_groups() -> None:
    weights = np.ones((4, 3, 1, 1), np.float32)  # 2 groups of 3 output channels: 6 biases
    facts = channel_weights(weights, 1, np.array([1, 2, 3, 4, -9, 6], np.float32), "per_channel")
    assert facts.bias.tolist() == [4, 9, 6]


def test_accumulator_bounds_are_reached_by_the_worst_input_and_never_passed() -> None:
    generator = np.random.default_rng(5)
    codes = generator.integers(-127, 128, (3, 10)).astype(np.int8)
    for low, high in ((0, 255), (-128, 127), (-3, 252), (-32768, 32767)):
        bounds = accumulator_bounds(codes, 0, low, high)
        wide = codes.astype(object)
        best = [sum(w * (high if w > 0 else low) for w in row) for row in wide]
        worst = [sum(w * (low if w > 0 else high) for w in row) for row in wide]
        assert bounds.tolist() == [max(up, -down) for up, down in zip(best, worst, strict=True)]


@given(st.integers(0, 10**6))
def test_an_odd_divisor_never_ties(seed: int) -> None:
    """Why D is odd: accumulator / D is never a half, so half-even and half-away agree."""
    generator = np.random.default_rng(seed)
    divisor = int(generator.integers(0, 8192)) * 2 + 1
    for accumulator in generator.integers(-(2**31), 2**31, 50):
        assert (Fraction(int(accumulator), divisor) * 2).denominator != 1 or int(accumulator) % divisor == 0
