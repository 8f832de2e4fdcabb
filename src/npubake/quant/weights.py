"""quant: integer weights on the grid of exact rounding. numpy and integers only; no onnx, no graph.

A group with input scale si and integer output scale so computes ``q = zero + round(accumulator / D[c])`` with an odd
D[c] < 2**14: no quotient lies on a tie, so every rounding rule agrees. This fixes the weight scale of channel c to
``so / (si * D[c])``. D is the largest odd number that keeps every weight within -127..127; the cost is at most
2 / D of the weight's resolution. Where not even D = 1 does, ``so`` must be raised first (``least_output_scale``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Granularity = Literal["per_channel", "per_tensor"]
WEIGHT_LIMIT = 127
DIVISOR_LIMIT = 16383
EMPTY_DIVISOR = 127  # a channel without weights carries only its bias: rounded to 1/127 of an output step
BIAS_LIMIT = 2**30  # half of int32, so that the sum of products has the other half
SPARED_DIVISOR = 15  # an odd number below a quotient of 15 or more costs at most 12 % of the weights' resolution


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelWeights:
    """What the arithmetic needs of one weighted operand. absmax: largest |w|; bias: largest |bias|; float64 [channels].

    shared: one scale for all channels (granularity per tensor); absmax and bias are then the layer's, in every channel.
    """

    absmax: NDArray[np.float64]
    bias: NDArray[np.float64]
    shared: bool


def channel_weights(
    weights: NDArray[np.float32], axis: int, bias: NDArray[np.float32] | None, granularity: Granularity
) -> ChannelWeights:
    """Extremes along ``axis``. bias: any shape whose last axis has one element a channel, a whole multiple of them
    (grouped ConvTranspose: channel c of every group shares a scale), or one element for all; None counts as zero.
    """
    channels = weights.shape[axis]
    others = tuple(other for other in range(weights.ndim) if other != axis % weights.ndim)
    absmax = np.abs(weights.astype(np.float64)).max(axis=others, initial=0.0)
    largest = np.zeros(channels) if bias is None else _bias_by_channel(bias, channels)
    shared = granularity == "per_tensor"
    if shared:
        absmax, largest = np.full(channels, absmax.max()), np.full(channels, largest.max())
    return ChannelWeights(absmax=absmax, bias=largest, shared=shared)


def least_output_scale(input_scale: float, facts: ChannelWeights, least: int = 1) -> float:
    """Smallest output scale for which every channel has a divisor of at least ``least``.

    A divisor D serves channel c when absmax * si * D <= 127 * so. The bias must fit too: |bias| * D <= 2**30 * so.
    """
    return float(max(facts.absmax.max() * input_scale / WEIGHT_LIMIT, facts.bias.max() / BIAS_LIMIT) * least)


def grid_divisors(input_scale: float, output_scale: float, facts: ChannelWeights) -> NDArray[np.int64]:
    """The largest odd D of each channel, int64 [channels] in 1..16383. Raises ValueError where a channel has none."""
    used = facts.absmax > 0
    wanted = np.full(len(used), float(EMPTY_DIVISOR))
    wanted[used] = np.floor(WEIGHT_LIMIT * output_scale / (input_scale * facts.absmax[used]))
    biased = facts.bias > 0
    wanted[biased] = np.minimum(wanted[biased], np.floor(BIAS_LIMIT * output_scale / facts.bias[biased]))
    if wanted.min() < 1:
        raise ValueError(f"channel {int(wanted.argmin())} has no divisor: its output scale {output_scale} is too small")
    divisors = np.minimum(wanted, DIVISOR_LIMIT).astype(np.int64)
    return np.asarray(divisors - (1 - divisors % 2))


def grid_scales(input_scale: float, output_scale: float, divisors: NDArray[np.int64]) -> NDArray[np.float64]:
    """``so / (si * D)``, float64 [channels]; si * D is exact in float64 (24 + 14 bits), so one rounding is made."""
    return output_scale / (input_scale * divisors.astype(np.float64))


def accumulator_scales(input_scale: float, facts: ChannelWeights) -> NDArray[np.float64]:
    """Scales of a group whose int32 accumulator leaves unrounded: absmax / 127, float64 [channels].

    A channel without weights takes the layer's largest (1 / 127 where the layer has none); a channel whose bias would
    pass 2**30 takes |bias| / (si * 2**30) instead: coarser weights, never a wrapped bias.
    """
    largest = facts.absmax.max() or 1.0
    filled = np.where(facts.absmax > 0, facts.absmax, largest) / WEIGHT_LIMIT
    return np.maximum(filled, facts.bias / (input_scale * BIAS_LIMIT))


def bias_bound_channels(input_scale: float, facts: ChannelWeights) -> list[int]:
    """Channels whose weight scale is wider than their weights ask for, because the bias must fit into int32."""
    bound = (facts.absmax > 0) & (facts.bias / (input_scale * BIAS_LIMIT) > facts.absmax / WEIGHT_LIMIT)
    return [int(channel) for channel in np.flatnonzero(bound)]


def quantize_weights(weights: NDArray[np.float32], scales: NDArray[np.float64], axis: int) -> NDArray[np.int8]:
    """rint(w / scale) along ``axis`` in float64. Raises ValueError rather than clip a weight beyond 127."""
    shape = [1] * weights.ndim
    shape[axis] = -1
    codes = np.rint(weights.astype(np.float64) / scales.reshape(shape))
    if np.abs(codes).max(initial=0.0) > WEIGHT_LIMIT:
        raise ValueError(f"a weight would be clipped: {np.abs(codes).max():.0f} > {WEIGHT_LIMIT}")
    return codes.astype(np.int8)


def quantize_bias(bias: NDArray[np.float32], bias_scales: NDArray[np.float64]) -> NDArray[np.int32]:
    """rint(bias / scale) as int32; bias [..., channels], bias_scales one a channel of the last axis.

    Raises ValueError rather than wrap.
    """
    codes = np.rint(bias.astype(np.float64) / bias_scales)
    if np.abs(codes).max(initial=0.0) > 2**31 - 1:
        raise ValueError(f"a bias would leave int32: {np.abs(codes).max():.0f}")
    return codes.astype(np.int32)


def accumulator_bounds(weights: NDArray[np.int8], axis: int, low: int, high: int) -> NDArray[np.int64]:
    """Largest |sum of products| of each output channel, int64 [channels], for centred inputs low <= x <= high.

    max(P, N) with P = sum(w > 0) * high + sum(-w > 0) * -low, N the other way round (low <= 0 <= high). Exact integers.
    For a grouped ConvTranspose the channel's weights of all groups are counted together: still a bound.
    """
    others = tuple(other for other in range(weights.ndim) if other != axis % weights.ndim)
    wide = weights.astype(np.int64)
    positive, negative = np.maximum(wide, 0).sum(axis=others), np.maximum(-wide, 0).sum(axis=others)
    return np.asarray(np.maximum(positive * high + negative * -low, negative * high + positive * -low))


def _bias_by_channel(bias: NDArray[np.float32], channels: int) -> NDArray[np.float64]:
    magnitude = np.abs(bias.astype(np.float64))
    if magnitude.size == 1:
        return np.full(channels, magnitude.item())
    return np.asarray(magnitude.reshape(-1, channels).max(axis=0))
