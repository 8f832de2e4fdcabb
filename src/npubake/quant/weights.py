"""quant: weights and biases as integers, in every format. numpy and integers only; no onnx, no graph.

What a kernel multiplies is ``(code - zero point) * multiplier``, an integer; real = scale[c] times it. Per group of
input channels the scale is ``scale[c] * multiplier[c, g]`` with multipliers of 1..16, so that one accumulator a channel
holds the exact sum of all groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.parameters import WeightParameters
from npubake.quant.weight_formats import (
    CODE_LIMITS,
    MULTIPLIER_LIMIT,
    SYMMETRIC_REACH,
    WeightFormat,
    contraction_axis,
)

BIAS_LIMIT = 2**30  # half of int32, so that the sum of products has the other half
_LEAST_MULTIPLIER = 8  # of a channel's widest group: below, the other groups would lose more than it gains
_UP = 1.0 - 2.0**-40  # a quotient so little above an integer is that integer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelWeights:
    """What the arithmetic needs of one weighted operand. low <= 0 <= high: extremes of the weights, float64
    [channels, groups], one group where the format has none; bias: largest |bias|, float64 [channels].

    With granularity per tensor all are the layer's, in every channel.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    bias: NDArray[np.float64]
    held: WeightFormat

    @property
    def absmax(self) -> NDArray[np.float64]:
        """Largest |w| of each channel, float64 [channels]."""
        return np.asarray(np.maximum(-self.low, self.high).max(axis=1, initial=0.0))

    @property
    def shared(self) -> bool:
        """True where all channels have one scale."""
        return self.held.granularity == "per_tensor"


def channel_weights(
    weights: NDArray[np.float32], axis: int, bias: NDArray[np.float32] | None, held: WeightFormat
) -> ChannelWeights:
    """Extremes along ``axis``; where one group would hold all input channels, the format has none.

    bias: any shape whose last axis has one element a channel, a whole multiple of them (grouped ConvTranspose: channel
    c of every group shares a scale), or one element for all; None counts as zero.
    """
    channels, inputs, starts = weights.shape[axis], weights.shape[contraction_axis(axis)], [0]
    rows = np.moveaxis(weights, (axis, contraction_axis(axis)), (0, 1)).reshape(channels, -1)
    if held.granularity == "per_group" and inputs <= held.group_size:
        held = replace(held, granularity="per_channel")
    if held.granularity == "per_group":
        starts = [first * (rows.shape[1] // inputs) for first in range(0, inputs, held.group_size)]
    low = np.minimum(np.minimum.reduceat(rows, starts, axis=1), 0.0).astype(np.float64)
    high = np.maximum(np.maximum.reduceat(rows, starts, axis=1), 0.0).astype(np.float64)
    largest = np.zeros(channels) if bias is None else _bias_by_channel(bias, channels)
    if held.granularity == "per_tensor":
        low, high = np.full_like(low, low.min()), np.full_like(high, high.max())
        largest = np.full(channels, largest.max())
    return ChannelWeights(low=low, high=high, bias=largest, held=held)


def least_steps(facts: ChannelWeights) -> NDArray[np.float64]:
    """The smallest step for which no code leaves its type, float64 [channels, groups]; 0 where all weights are 0.

    Symmetric: absmax / 127, 32767 or (just below) 7.5. With a zero point: the whole span over all levels; below it by
    2**-20, so that both ends never round away from each other.
    """
    if facts.held.symmetric:
        return np.asarray(np.maximum(-facts.low, facts.high) / SYMMETRIC_REACH[facts.held.dtype])
    return np.asarray((facts.high - facts.low) / (facts.held.levels - 2.0**-20))


def wanted_scales(facts: ChannelWeights, input_scale: float) -> NDArray[np.float64]:
    """The scales that weights and bias ask for, float64 [channels]; 0 for a channel that has neither.

    Per group the widest group of a channel takes a multiplier of 8..16, whichever gives the least noise: the sum over
    groups of the squared step. A bias that would pass 2**30 widens the scale: coarser weights, never a wrapped bias.
    """
    steps = least_steps(facts)
    widest = steps.max(axis=1, initial=0.0)
    if facts.held.granularity == "per_group":
        tried = [widest / largest for largest in range(MULTIPLIER_LIMIT, _LEAST_MULTIPLIER - 1, -1)]
        noise = [((group_multipliers(steps, scales) * scales[:, None]) ** 2).sum(axis=1) for scales in tried]
        widest = np.take_along_axis(np.array(tried), np.argmin(noise, axis=0)[None], axis=0)[0]
    return np.asarray(np.maximum(widest, facts.bias / (input_scale * BIAS_LIMIT)))


def group_multipliers(steps: NDArray[np.float64], scales: NDArray[np.float64]) -> NDArray[np.int64]:
    """The least multipliers with ``scale * multiplier >= step``, int64 [channels, groups], at least 1."""
    used = np.where(scales > 0, scales, 1.0)[:, None]
    return np.maximum(np.ceil(steps / used * _UP), 1).astype(np.int64)


def zero_points(facts: ChannelWeights, steps: NDArray[np.float64]) -> NDArray[np.int64]:
    """The code of 0 with which the lowest weight has the lowest code, int64 [channels, groups]; steps alike."""
    return np.asarray(CODE_LIMITS[facts.held.dtype][0] - np.rint(facts.low / steps).astype(np.int64))


def bias_bound_channels(facts: ChannelWeights, input_scale: float) -> list[int]:
    """Channels whose weight scale is wider than their weights ask for, because the bias must fit into int32."""
    used = facts.absmax > 0
    bound = used & (wanted_scales(facts, input_scale) > wanted_scales(facts, np.inf))
    return [int(channel) for channel in np.flatnonzero(bound)]


def weight_steps(entry: WeightParameters, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Step of every weight: scale[c] * multiplier[c, g], float64, to broadcast over an initialiser of ``shape``."""
    scales = np.array(entry.scales, np.float64)
    if not entry.multipliers:
        return _spread(scales, entry, shape)
    return _spread(scales[:, None] * np.reshape(entry.multipliers, (len(scales), -1)), entry, shape)


def encode_weights(weights: NDArray[np.float32], entry: WeightParameters) -> NDArray[Any]:
    """Codes ``zero point + rint(w / step)`` in int8 or int16 (int4 in int8), float64 arithmetic.

    Raises ValueError rather than clip a weight.
    """
    codes = np.rint(weights / weight_steps(entry, weights.shape))
    low, high = CODE_LIMITS[entry.dtype]
    if entry.zero_points:
        codes += _spread(np.array(entry.zero_points), entry, weights.shape)
    else:
        low = -high
    lowest, highest = codes.min(initial=0.0), codes.max(initial=0.0)
    if lowest < low or highest > high:
        raise ValueError(f"a weight would be clipped: codes {lowest:.0f}..{highest:.0f} beyond {low}..{high}")
    return codes.astype(np.int16 if entry.dtype == "int16" else np.int8)


def code_parts(
    codes: NDArray[Any], entry: WeightParameters
) -> tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Codes, zero points and multipliers; the latter two int64 to broadcast over the codes, None for zeros and ones."""
    zeros = _spread(np.array(entry.zero_points), entry, codes.shape) if entry.zero_points else None
    multipliers = _spread(np.array(entry.multipliers), entry, codes.shape) if entry.multipliers else None
    return codes, zeros, multipliers


def effective_weights(codes: NDArray[Any], entry: WeightParameters) -> NDArray[np.int64]:
    """What kernels multiply: (code - zero point) * multiplier, int64 in the shape of ``codes``."""
    _, zeros, multipliers = code_parts(codes, entry)
    whole = codes.astype(np.int64)
    if zeros is not None:
        whole -= zeros
    if multipliers is not None:
        whole *= multipliers
    return whole


def block_values(values: NDArray[Any], entry: WeightParameters, shape: tuple[int, ...]) -> NDArray[Any]:
    """``values``, one a channel and group, in the shape of an initialiser whose input channels are groups: the scale or
    zero point of a DequantizeLinear with a block size, which has one element a block.
    """
    inner = contraction_axis(entry.axis)
    rows = values.reshape(len(entry.scales), -1)
    target, whole = [1] * len(shape), list(shape)
    target[entry.axis], target[inner] = rows.shape
    whole[inner] = rows.shape[1]
    return np.ascontiguousarray(np.broadcast_to((rows if entry.axis < inner else rows.T).reshape(target), whole))


def quantize_bias(bias: NDArray[np.float32], bias_scales: NDArray[np.float64]) -> NDArray[np.int32]:
    """rint(bias / scale) as int32; bias [..., channels], bias_scales one a channel of the last axis.

    Raises ValueError rather than wrap.
    """
    codes = np.rint(bias.astype(np.float64) / bias_scales)
    if np.abs(codes).max(initial=0.0) > 2**31 - 1:
        raise ValueError(f"a bias would leave int32: {np.abs(codes).max():.0f}")
    return codes.astype(np.int32)


def accumulator_bounds(weights: NDArray[np.int64], axis: int, low: int, high: int) -> NDArray[np.int64]:
    """Largest |sum of products| of each output channel, int64 [channels], for centred inputs low <= x <= high.

    max(P, N) with P = sum(w > 0) * high + sum(-w > 0) * -low, N the other way round (low <= 0 <= high). Exact integers.
    For a grouped ConvTranspose the channel's weights of all groups are counted together: still a bound.
    """
    others = tuple(other for other in range(weights.ndim) if other != axis % weights.ndim)
    wide = weights.astype(np.int64)
    positive, negative = np.maximum(wide, 0).sum(axis=others), np.maximum(-wide, 0).sum(axis=others)
    return np.asarray(np.maximum(positive * high + negative * -low, negative * high + positive * -low))


def _spread(values: NDArray[Any], entry: WeightParameters, shape: tuple[int, ...]) -> NDArray[Any]:
    """``values``, one a channel or a channel and group, to broadcast over an initialiser of ``shape``."""
    inner = contraction_axis(entry.axis)
    channels, target = len(entry.scales), [1] * len(shape)
    target[entry.axis] = channels
    rows = values.reshape(channels, -1)
    if not entry.group_size:
        return rows.reshape(target)
    target[inner] = shape[inner]
    rows = np.repeat(rows, entry.group_size, axis=1)[:, : shape[inner]]
    return (rows if entry.axis < inner else rows.T).reshape(target)


def _bias_by_channel(bias: NDArray[np.float32], channels: int) -> NDArray[np.float64]:
    magnitude = np.abs(bias.astype(np.float64))
    if magnitude.size == 1:
        return np.full(channels, magnitude.item())
    return np.asarray(magnitude.reshape(-1, channels).max(axis=0))
