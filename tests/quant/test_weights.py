"""quant: weights and biases as integers in every format, against exact rational and integer arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.quant.operands import WeightedOperand
from npubake.quant.parameters import WeightParameters, WeightType
from npubake.quant.weight_formats import CODE_LIMITS, Granularity, WeightFormat
from npubake.quant.weight_scales import weight_parameters
from npubake.quant.weights import (
    accumulator_bounds,
    block_values,
    channel_weights,
    effective_weights,
    encode_weights,
    least_steps,
    quantize_bias,
    wanted_scales,
    weight_steps,
)
from tests.quant.test_weight_grid import INT16, UINT8

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 3))
TYPES: tuple[WeightType, ...] = get_args(WeightType)
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
FORMATS = [
    WeightFormat(dtype=dtype, granularity=granularity, group_size=4, symmetric=symmetric)
    for dtype, granularity, symmetric in product(TYPES, GRANULARITIES, (True, False))
    if (dtype, granularity) != ("int16", "per_group")
]


def random_weights(seed: int, shape: tuple[int, ...], spread: float) -> NDArray[np.float32]:
    """Channels of very different size, as depthwise layers have."""
    generator = np.random.default_rng(seed)
    size = 10.0 ** generator.uniform(-spread, spread, shape[0])
    return (generator.normal(size=shape) * size.reshape(-1, *[1] * (len(shape) - 1))).astype(np.float32)


def entry_of(weights: NDArray[np.float32], held: WeightFormat, axis: int = 0) -> WeightParameters:
    operand = WeightedOperand(node="n", initializer="w", axis=axis, weights=weights)
    return weight_parameters(operand, channel_weights(weights, axis, None, held), INT16, INT16)[0]


@settings(max_examples=20, deadline=None)
@pytest.mark.parametrize("held", FORMATS, ids=lambda held: f"{held.dtype}-{held.granularity}-{held.symmetric}")
@given(st.integers(0, 10**6), SHAPES, st.integers(0, 1))
def test_no_weight_moves_by_more_than_half_a_step_and_no_code_leaves_its_type(
    held: WeightFormat, seed: int, shape: tuple[int, ...], axis: int
) -> None:
    weights = random_weights(seed, shape, 2.0)
    entry = entry_of(weights, held, axis)
    codes = encode_weights(weights, entry)
    low, high = CODE_LIMITS[held.dtype]
    inputs, channels = shape[1 - axis], shape[axis]
    groups = -(-inputs // 4) if held.granularity == "per_group" and inputs > 4 else 1
    assert entry.group_size == (4 if groups > 1 else 0)
    assert len(entry.multipliers) == (channels * groups if groups > 1 else 0)
    assert len(entry.zero_points) == (0 if held.symmetric else channels * groups)
    assert set(entry.multipliers) <= set(range(1, 17))
    effective = effective_weights(codes, entry)
    for index in np.ndindex(weights.shape):
        channel, place = index[axis], index[axis] * groups + index[1 - axis] // (4 if groups > 1 else inputs)
        multiplier = entry.multipliers[place] if entry.multipliers else 1
        zero = entry.zero_points[place] if entry.zero_points else 0
        step, code = Fraction(entry.scales[channel]) * multiplier, int(codes[index])
        assert (low if entry.zero_points else -high) <= code <= high
        assert low <= zero <= high
        assert int(effective[index]) == (code - zero) * multiplier
        error = abs(Fraction(float(weights[index])) - (code - zero) * step)
        assert error <= step * (Fraction(1, 2) + Fraction(1, 2**30))
    if held.granularity == "per_tensor":
        assert len(set(entry.scales)) == 1
        assert len(set(entry.zero_points)) == (0 if held.symmetric else 1)


@pytest.mark.parametrize(
    ("held", "steps"),
    [
        (WeightFormat(), 127),
        (WeightFormat(dtype="int16"), 32767),
        (WeightFormat(dtype="int4"), 7.5),
        (WeightFormat(symmetric=False), 255 / 3.5),
        (WeightFormat(dtype="int4", symmetric=False), 15 / 3.5),
        (WeightFormat(dtype="int16", symmetric=False), 65535 / 3.5),
    ],
)
def test_the_step_uses_the_whole_type(held: WeightFormat, steps: float) -> None:
    """Weights from -1 to 2.5 for zero points, to 1 without."""
    weights = np.array([[-1, 1 if held.symmetric else 2.5, 0.25]], np.float32)
    assert least_steps(channel_weights(weights, 0, None, held)).item() == pytest.approx(1 / steps, rel=1e-6)


def test_groups_are_finer_than_channels_where_their_sizes_differ() -> None:
    """Eight groups of sizes 1..8: the error of rounding falls by more than half (2.4 times in the squared steps)."""
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(16, 8, 32)) * np.arange(1, 9).reshape(1, 8, 1)
    flat = weights.reshape(16, 256).astype(np.float32)

    def error(held: WeightFormat) -> float:
        entry = entry_of(flat, held)
        restored = effective_weights(encode_weights(flat, entry), entry) * np.array(entry.scales)[:, None]
        return float(((restored - flat) ** 2).mean())

    channels = error(WeightFormat(dtype="int4"))
    assert error(WeightFormat(dtype="int4", granularity="per_group", group_size=32)) < 0.5 * channels


def test_the_widest_group_takes_the_multiplier_of_least_noise() -> None:
    """By exhaustion: no other multiplier 8..16 of the widest group gives a smaller sum of squared steps."""
    weights = random_weights(3, (5, 64), 1.0) * np.repeat(np.random.default_rng(4).uniform(0.1, 1, 16), 4)
    facts = channel_weights(
        weights.astype(np.float32), 0, None, WeightFormat(dtype="int4", granularity="per_group", group_size=4)
    )
    found, steps = wanted_scales(facts, 1.0), least_steps(facts)
    for channel in range(5):
        noise = {}
        for largest in range(8, 17):
            scale = Fraction(float(steps[channel].max())) / largest
            parts = [-(-Fraction(float(step)) // scale) * scale for step in steps[channel]]
            noise[largest] = float(sum(part**2 for part in parts))
        chosen = round(float(steps[channel].max() / found[channel]))
        assert noise[chosen] <= min(noise.values()) * (1 + 1e-9)


def test_steps_and_blocks_broadcast_over_the_initialiser() -> None:
    for axis, shape in ((0, (3, 10, 2)), (1, (10, 3, 2))):
        weights = np.moveaxis(random_weights(1, (3, 10, 2), 1.0), 0, axis)
        assert weights.shape == shape
        entry = entry_of(weights, WeightFormat(dtype="int4", granularity="per_group", group_size=4), axis)
        steps = np.broadcast_to(weight_steps(entry, shape), shape)
        blocks = block_values(np.array(entry.multipliers), entry, shape)
        assert blocks.shape == tuple(3 if place != 2 else 2 for place in range(3))
        for c, i, t in np.ndindex(3, 10, 2):
            at, block = ((c, i, t), (c, i // 4, t)) if axis == 0 else ((i, c, t), (i // 4, c, t))
            assert blocks[block] == entry.multipliers[c * 3 + i // 4]
            assert steps[at] == entry.scales[c] * entry.multipliers[c * 3 + i // 4]


def test_a_bias_beyond_int32_makes_its_channel_coarser() -> None:
    """The measured case: weights near 1e-7 beside a bias of 5 (quantisers that clip it lose the layer)."""
    weights = np.full((2, 3), 1e-7, np.float32)
    weights[1] = 0.5
    bias = np.array([5.0, 5.0], np.float32)
    for held in FORMATS:
        facts = channel_weights(weights, 0, bias, held)
        scales = wanted_scales(facts, 0.004)
        codes = quantize_bias(bias, 0.004 * scales)
        assert np.abs(codes.astype(np.int64)).max() <= 2**30 + 2**6
        np.testing.assert_allclose(codes * 0.004 * scales, bias, rtol=1e-6)


def test_a_weight_or_bias_that_would_not_fit_is_an_error_never_clipped() -> None:
    for dtype, largest in zip(TYPES, (7, 127, 32767), strict=True):
        entry = WeightParameters(initializer="w", dtype=dtype, axis=0, scales=(1.0,), divisors=())
        for value in (largest, -largest):
            assert encode_weights(np.array([[value]], np.float32), entry).item() == value
        for value in (largest + 1, -largest - 1):
            with pytest.raises(ValueError, match="clipped"):
                encode_weights(np.array([[value]], np.float32), entry)
    with pytest.raises(ValueError, match="int32"):
        quantize_bias(np.array([1.0], np.float32), np.array([1e-10]))


def test_per_tensor_gives_every_channel_the_widest_facts() -> None:
    held = WeightFormat(granularity="per_tensor")
    facts = channel_weights(np.array([[1, -4], [2, 3]], np.float32), 0, np.array([7, -9], np.float32), held)
    assert facts.absmax.tolist() == [4, 4]
    assert facts.bias.tolist() == [9, 9]


def test_extremes_follow_the_channel_axis() -> None:
    weights = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4)
    for axis in range(3):
        rows = [np.take(weights, c, axis).reshape(-1) for c in range(weights.shape[axis])]
        facts = channel_weights(weights, axis, None, WeightFormat())
        assert facts.low[:, 0].tolist() == [min(0.0, *map(float, row)) for row in rows]
        assert facts.high[:, 0].tolist() == [max(0.0, *map(float, row)) for row in rows]


def test_a_grouped_transposed_bias_is_shared_by_the_channels_of_all_groups() -> None:
    weights = np.ones((4, 3, 1, 1), np.float32)  # 2 groups of 3 output channels: 6 biases
    facts = channel_weights(weights, 1, np.array([1, 2, 3, 4, -9, 6], np.float32), WeightFormat())
    assert facts.bias.tolist() == [4, 9, 6]


def test_accumulator_bounds_are_reached_by_the_worst_input_and_never_passed() -> None:
    generator = np.random.default_rng(5)
    for reach, low, high in product((127, 32767), (0, -128, -3, -32768), (255, 127, 32767)):
        codes = generator.integers(-reach, reach + 1, (3, 10))
        bounds = accumulator_bounds(codes, 0, low, high)
        wide = codes.astype(object)
        best = [sum(w * (high if w > 0 else low) for w in row) for row in wide]
        worst = [sum(w * (low if w > 0 else high) for w in row) for row in wide]
        assert bounds.tolist() == [max(up, -down) for up, down in zip(best, worst, strict=True)]


def test_unit_of_an_8_bit_input_serves_as_well() -> None:
    """Between 8-bit tensors the grid is as fine: the step is at most 0.025 % above absmax / 127."""
    weights = random_weights(9, (6, 20), 3.0)
    operand = WeightedOperand(node="n", initializer="w", axis=0, weights=weights)
    facts = channel_weights(weights, 0, None, WeightFormat())
    entry, _ = weight_parameters(operand, facts, UINT8, UINT8)
    ideal = facts.absmax / 127
    assert np.all(np.array(entry.scales) >= ideal * (1 - 2.0**-50))
    narrow = np.array(entry.shifts) > 0
    assert narrow.any()
    assert np.all(np.array(entry.scales)[narrow] <= ideal[narrow] * 1.00025)
