"""quant: weight parameters of every weighted integer group, with the bound of its accumulator. No onnx, no graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.quant.operands import WeightedOperand
from npubake.quant.parameters import TensorParameters, WeightParameters, limits
from npubake.quant.weights import (
    ChannelWeights,
    accumulator_bounds,
    accumulator_scales,
    bias_bound_channels,
    grid_divisors,
    grid_scales,
    quantize_bias,
    quantize_weights,
)

_SUM_LIMIT = 2**30 - 1  # with |bias| <= 2**30 the int32 accumulator cannot wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedFacts:
    """What the record says of a weighted group. bound: largest possible |accumulator|, bias included; bias_channels:
    channels whose weights are coarser because their bias must fit into int32; sum_channels: because the sum must.
    """

    bound: int
    bias_channels: tuple[int, ...]
    sum_channels: tuple[int, ...]


def weight_parameters(
    operand: WeightedOperand, extremes: ChannelWeights, source: TensorParameters, target: TensorParameters | None
) -> tuple[WeightParameters, WeightedFacts]:
    """Scales of one operand between an input and an output; target None: the accumulator leaves unrounded."""
    crowded: tuple[int, ...] = ()
    if target is None:
        divisors: tuple[int, ...] = ()
        scales, crowded = _unrounded_scales(operand, extremes, source)
    else:
        found = grid_divisors(source.scale, target.scale, extremes)
        divisors = tuple(int(divisor) for divisor in found)
        scales = grid_scales(source.scale, target.scale, found)
    parameters = WeightParameters(
        initializer=operand.initializer,
        dtype="int8",
        axis=operand.axis,
        scales=tuple(float(scale) for scale in scales),
        divisors=divisors,
    )
    facts = WeightedFacts(
        bound=_bound(operand, scales, source),
        bias_channels=tuple(bias_bound_channels(source.scale, extremes)),
        sum_channels=crowded,
    )
    return parameters, facts


def integer_bias(operand: WeightedOperand, scales: NDArray[np.float64], input_scale: float) -> NDArray[np.int32] | None:
    """The operand's bias as int32, channels last; None for none. bias scale = input scale * weight scale."""
    bias = operand.channel_bias()
    if bias is None:
        return None
    return quantize_bias(bias, bias_scales(bias.shape[-1], scales, input_scale))


def bias_scales(length: int, scales: NDArray[np.float64], input_scale: float) -> NDArray[np.float64]:
    """One scale for each element of a bias' last axis: a grouped ConvTranspose repeats its channels' scales."""
    return np.tile(input_scale * scales, length // len(scales))


def _unrounded_scales(
    operand: WeightedOperand, extremes: ChannelWeights, source: TensorParameters
) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Scales of an accumulator that leaves as int32, and the channels that were made coarser so that it cannot wrap."""
    scales = start = accumulator_scales(source.scale, extremes)
    ends = limits(source)
    while True:
        sums = accumulator_bounds(quantize_weights(operand.weights, scales, operand.axis), operand.axis, *ends)
        wider = np.where(sums > _SUM_LIMIT, np.maximum(sums / _SUM_LIMIT, 1.01), 1.0)
        if wider.max(initial=1.0) == 1.0:
            return scales, tuple(int(channel) for channel in np.flatnonzero(scales > start))
        scales = scales * (wider.max() if extremes.shared else wider)


def _bound(operand: WeightedOperand, scales: NDArray[np.float64], source: TensorParameters) -> int:
    codes = quantize_weights(operand.weights, scales, operand.axis)
    bounds = accumulator_bounds(codes, operand.axis, *limits(source))
    bias = integer_bias(operand, scales, source.scale)
    if bias is not None:
        bounds = bounds + np.abs(bias.astype(np.int64)).reshape(-1, len(scales)).max(axis=0)
    return int(bounds.max(initial=0))
