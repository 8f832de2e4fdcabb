"""quant: weight parameters of one group, checked by integers of any size."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.quant.affine import tensor_parameters
from npubake.quant.operands import WeightedOperand
from npubake.quant.parameters import TensorParameters
from npubake.quant.ranges import Range
from npubake.quant.weight_formats import Granularity, WeightFormat
from npubake.quant.weight_scales import bias_scales, integer_bias, weight_parameters
from npubake.quant.weights import ChannelWeights, channel_weights

UINT8 = tensor_parameters(Range(low=-1.0, high=3.0), "uint8", asymmetric=True)
INT16 = tensor_parameters(Range(low=-1.0, high=1.0), "int16", asymmetric=True)
OUTPUT = tensor_parameters(Range(low=0.0, high=40.0), "uint8", asymmetric=True)


def operand(weights: NDArray[np.float32], bias: NDArray[np.float32] | None, axis: int = 0) -> WeightedOperand:
    return WeightedOperand(node="n", initializer="w", axis=axis, weights=weights, bias=bias)


def extremes(item: WeightedOperand, granularity: Granularity = "per_channel") -> ChannelWeights:
    return channel_weights(item.weights, item.axis, item.channel_bias(), WeightFormat(granularity=granularity))


def largest_sum(item: WeightedOperand, scales: NDArray[np.float64], source: TensorParameters) -> int:
    """The worst accumulator over all inputs, with Python's integers (bias on the worse side)."""
    low, high = (-source.zero_point, 255 - source.zero_point) if source.dtype == "uint8" else (-32768, 32767)
    shape = [1] * item.weights.ndim
    shape[item.axis] = -1
    codes = np.rint(item.weights / scales.reshape(shape)).astype(int)
    worst = 0
    for channel in range(item.channels):
        row = [int(code) for code in np.take(codes, channel, item.axis).reshape(-1)]
        up = sum(code * (high if code > 0 else low) for code in row)
        down = sum(code * (low if code > 0 else high) for code in row)
        bias = 0
        if item.bias is not None:
            exact = Fraction(float(item.bias[channel])) / (Fraction(source.scale) * Fraction(float(scales[channel])))
            bias = abs(round(exact))
        worst = max(worst, up + bias, -down + bias)
    return worst


def test_a_requantised_group_lies_on_the_grid_and_its_bound_is_right() -> None:
    generator = np.random.default_rng(1)
    item = operand(generator.normal(size=(5, 3, 3, 3)).astype(np.float32), generator.normal(size=5).astype(np.float32))
    made, facts = weight_parameters(item, extremes(item), UINT8, OUTPUT)
    assert len(made.divisors) == len(made.scales) == 5
    for divisor, shift, scale in zip(made.divisors, made.shifts, made.scales, strict=True):
        exact = Fraction(OUTPUT.scale) * 2**shift / (Fraction(UINT8.scale) * divisor)
        assert abs(Fraction(scale) - exact) <= exact / 2**53
    assert abs(facts.bound - largest_sum(item, np.array(made.scales), UINT8)) <= 1
    assert (facts.bias_channels, facts.sum_channels) == ((), ())


def test_an_accumulator_that_leaves_has_scales_absmax_over_127() -> None:
    weights = np.array([[1, -2], [0.5, 0.25], [0, 0]], np.float32)
    item = operand(weights, np.array([1, 2, 3], np.float32))
    made, _ = weight_parameters(item, extremes(item), UINT8, None)
    assert made.divisors == ()
    assert made.scales == (2 / 127, 0.5 / 127, 2 / 127)


def test_per_tensor_gives_equal_scales() -> None:
    item = operand(np.array([[1, -2], [0.5, 0.25]], np.float32), None)
    for target in (OUTPUT, None):
        made, _ = weight_parameters(item, extremes(item, "per_tensor"), UINT8, target)
        assert len(set(made.scales)) == 1


def test_a_wide_int16_tail_cannot_wrap_its_int32() -> None:
    """2,000 equal weights of 127 steps and int16 inputs: 127 * 32768 * 2000 is 3.9 times 2**31."""
    weights = np.ones((2, 2000), np.float32)
    weights[1, 1:] = 0
    item = operand(weights, None)
    made, facts = weight_parameters(item, extremes(item), INT16, None)
    assert largest_sum(item, np.array(made.scales), INT16) < 2**30
    assert facts.bound < 2**30
    assert facts.sum_channels == (0,)
    assert made.scales[1] == 1 / 127


def test_grouped_transposed_channels_repeat_their_bias_scales() -> None:
    weights = np.ones((4, 3, 1, 1), np.float32)
    bias = np.array([1, 2, 3, -1, -2, -3], np.float32)
    item = operand(weights, bias, axis=1)
    made, _ = weight_parameters(item, extremes(item), UINT8, OUTPUT)
    scales = np.array(made.scales)
    codes = integer_bias(item, scales, UINT8.scale)
    assert codes is not None
    steps = bias_scales(6, scales, UINT8.scale)
    np.testing.assert_array_equal(steps[:3], steps[3:])
    np.testing.assert_allclose(codes * steps, bias, atol=steps.max() / 2)


def test_a_channel_without_weights_keeps_its_bias() -> None:
    weights = np.array([[0.0, 0.0], [1.0, -0.5]], np.float32)
    item = operand(weights, np.array([3.0, 3.0], np.float32))
    for target in (OUTPUT, None):
        made, _ = weight_parameters(item, extremes(item), UINT8, target)
        codes = integer_bias(item, np.array(made.scales), UINT8.scale)
        assert codes is not None
        steps = UINT8.scale * np.array(made.scales)
        assert abs(codes[0] * steps[0] - 3.0) <= steps[0] / 2
        assert steps[0] <= OUTPUT.scale / 100


def test_a_bias_that_must_fit_makes_the_channel_coarser_and_is_named() -> None:
    weights = np.full((2, 3), 1e-7, np.float32)
    weights[1] = 0.5
    item = operand(weights, np.array([5.0, 5.0], np.float32))
    for target in (OUTPUT, None):
        made, facts = weight_parameters(item, extremes(item), UINT8, target)
        assert facts.bias_channels == (0,)
        codes = integer_bias(item, np.array(made.scales), UINT8.scale)
        assert codes is not None
        np.testing.assert_allclose(codes * UINT8.scale * np.array(made.scales), 5.0, rtol=1e-4)


def test_scales_that_are_asked_for_are_taken_to_the_grid() -> None:
    """A searched scale: what it gives is its neighbour on the grid, and codes that leave the type are an error."""
    item = operand(np.array([[1.0, -0.25], [0.5, 0.125]], np.float32), None)
    wanted = np.array([0.01, 0.005])
    made, _ = weight_parameters(item, extremes(item), UINT8, OUTPUT, wanted)
    assert np.all((np.array(made.scales) >= wanted) & (np.array(made.scales) < wanted * 1.00025))
    assert weight_parameters(item, extremes(item), UINT8, None, wanted)[0].scales == (0.01, 0.005)
    with pytest.raises(ValueError, match="clipped"):
        weight_parameters(item, extremes(item), UINT8, OUTPUT, wanted / 2)
