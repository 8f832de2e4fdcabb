"""quant: weight parameters of every weighted integer group, with the bound of its accumulator. No onnx, no graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.quant.operands import WeightedOperand
from npubake.quant.parameters import TensorParameters, WeightParameters, limits
from npubake.quant.weight_grid import Placed, divisor_limit, place_scales
from npubake.quant.weights import (
    ChannelWeights,
    accumulator_bounds,
    bias_bound_channels,
    effective_weights,
    encode_weights,
    group_multipliers,
    least_steps,
    quantize_bias,
    wanted_scales,
    zero_points,
)

_SUM_LIMIT = 2**30 - 1  # with |bias| <= 2**30 the int32 accumulator cannot wrap
EMPTY_DIVISOR = 127  # a channel without weights carries only its bias: rounded to 1/127 of an output step


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedFacts:
    """What the record says of a weighted group. bound: largest possible |accumulator|, bias included; bias_channels:
    channels whose weights are coarser because their bias must fit into int32; sum_channels: because the sum must.
    """

    bound: int
    bias_channels: tuple[int, ...]
    sum_channels: tuple[int, ...]


def weight_parameters(
    operand: WeightedOperand,
    extremes: ChannelWeights,
    source: TensorParameters,
    target: TensorParameters | None,
    scales: NDArray[np.float64] | None = None,
) -> tuple[WeightParameters, WeightedFacts]:
    """Parameters of one operand between an input and an output; target None: the accumulator leaves unrounded.

    scales: wanted ones, float64 [channels], where those that the weights ask for are not to be taken.
    """
    wanted = wanted_scales(extremes, source.scale) if scales is None else scales
    if target is None:
        entry, crowded = _unrounded(operand, extremes, source, _filled(extremes, wanted))
    else:
        wanted = np.where(wanted > 0, wanted, target.scale / (source.scale * EMPTY_DIVISOR))
        placed = place_scales(wanted, source.scale, target.scale, divisor_limit(source, target, extremes.held))
        entry, crowded = _entry(operand, extremes, placed.scales, placed), ()
    facts = WeightedFacts(
        bound=_bound(operand, entry, source),
        bias_channels=tuple(bias_bound_channels(extremes, source.scale)),
        sum_channels=crowded,
    )
    return entry, facts


def integer_bias(operand: WeightedOperand, scales: NDArray[np.float64], input_scale: float) -> NDArray[np.int32] | None:
    """The operand's bias as int32, channels last; None for none. bias scale = input scale * weight scale."""
    bias = operand.channel_bias()
    if bias is None:
        return None
    return quantize_bias(bias, bias_scales(bias.shape[-1], scales, input_scale))


def bias_scales(length: int, scales: NDArray[np.float64], input_scale: float) -> NDArray[np.float64]:
    """One scale for each element of a bias' last axis: a grouped ConvTranspose repeats its channels' scales."""
    return np.tile(input_scale * scales, length // len(scales))


def _filled(extremes: ChannelWeights, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """``wanted`` with the layer's largest (1 / 127 where it has none) for channels without weights."""
    largest = wanted.max(initial=0.0) or 1.0 / EMPTY_DIVISOR
    return np.where(extremes.absmax > 0, wanted, np.maximum(wanted, largest))


def _entry(
    operand: WeightedOperand, extremes: ChannelWeights, scales: NDArray[np.float64], placed: Placed | None
) -> WeightParameters:
    """All of one group's parameters: multipliers and zero points follow from the scales."""
    held = extremes.held
    multipliers, steps = np.ones(0, np.int64), scales[:, None]
    if held.granularity == "per_group":
        multipliers = group_multipliers(least_steps(extremes), scales)
        steps = steps * multipliers
    return WeightParameters(
        initializer=operand.initializer,
        dtype=held.dtype,
        axis=operand.axis,
        scales=tuple(scales.tolist()),
        divisors=tuple(placed.divisors.tolist()) if placed else (),
        shifts=tuple(placed.shifts.tolist()) if placed else (),
        zero_points=() if held.symmetric else tuple(zero_points(extremes, steps).astype(np.int64).ravel().tolist()),
        group_size=held.group_size if held.granularity == "per_group" else 0,
        multipliers=tuple(multipliers.ravel().tolist()),
    )


def _unrounded(
    operand: WeightedOperand, extremes: ChannelWeights, source: TensorParameters, start: NDArray[np.float64]
) -> tuple[WeightParameters, tuple[int, ...]]:
    """Scales of an accumulator that leaves as int32, and the channels that were made coarser so that it cannot wrap."""
    scales = start
    while True:
        entry = _entry(operand, extremes, scales, None)
        codes = effective_weights(encode_weights(operand.weights, entry), entry)
        sums = accumulator_bounds(codes, operand.axis, *limits(source))
        wider = np.where(sums > _SUM_LIMIT, np.maximum(sums / _SUM_LIMIT, 1.01), 1.0)
        if wider.max(initial=1.0) == 1.0:
            return entry, tuple(int(channel) for channel in np.flatnonzero(scales > start))
        scales = scales * (wider.max() if extremes.shared else wider)


def _bound(operand: WeightedOperand, entry: WeightParameters, source: TensorParameters) -> int:
    codes = effective_weights(encode_weights(operand.weights, entry), entry)
    bounds = accumulator_bounds(codes, operand.axis, *limits(source))
    scales = np.array(entry.scales)
    bias = integer_bias(operand, scales, source.scale)
    if bias is not None:
        bounds = bounds + np.abs(bias.astype(np.int64)).reshape(-1, len(scales)).max(axis=0)
    return int(bounds.max(initial=0))
