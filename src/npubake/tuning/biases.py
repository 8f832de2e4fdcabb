"""tuning: biases that take back what rounding the weights shifts, from the mean of what each layer reads.

A layer computes W x + b; with rounded weights its mean output moves by (W_hat - W) mean(x), a constant for each output
channel that the bias can undo: Nagel, van Baalen, Blankevoort and Welling, *Data-Free Quantization Through Weight
Equalization and Bias Correction*, arXiv 1906.04721, section 4.2 (there from batch norms, here observed).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.weights import BIAS_LIMIT
from npubake.tuning.candidate import Candidate, Layer, channel_means
from npubake.tuning.exact_products import product
from npubake.tuning.matrix_form import MatrixForm
from npubake.tuning.simulation import Array

Wide = NDArray[np.float64]


def corrected_from_statistics(candidate: Candidate, groups: Collection[str]) -> dict[str, Array]:
    """New biases of ``groups``, by initialiser; from the channel means of the statistics, so without an inference."""
    layers = [layer for name, layer in candidate.layers.items() if name in groups and correctable(layer)]
    means = channel_means(candidate.start, [layer.form for layer in layers])
    found = {}
    for layer in layers:
        if layer.group in means:
            values = candidate.constants.get(layer.operand.initializer, layer.nearest)
            columns = covered_means(layer.form, means[layer.group])
            found[layer.operand.bias_name] = corrected_bias(layer, values, columns)
    return found


def covered_means(form: MatrixForm, channel_means: Wide) -> Wide:
    """Means of the columns [groups, columns] of an input whose channels have these means, evenly over each picture.

    A kernel tap reads a value for a share of the output positions, and padding (or, in a ConvTranspose, the zeros
    between values) for the rest: on maps of 7 x 7 a border tap of a 3 x 3 kernel misses one position in seven.
    """
    if form.operator == "linear":
        return np.asarray(channel_means, np.float64)[None]
    shares = np.ones(1)
    for axis in range(len(form.kernel)):
        shares = np.multiply.outer(shares, _tap_shares(form, axis)).reshape(-1)
    return np.multiply.outer(np.asarray(channel_means, np.float64), shares).reshape(form.groups, form.columns)


def _tap_shares(form: MatrixForm, axis: int) -> Wide:
    """Share of the output places along one axis at which each tap reads a value, float64 [taps]."""
    size, made = form.input_shape[2 + axis], form.output_shape[2 + axis]
    reach = np.arange(form.kernel[axis])[:, None] * form.dilations[axis]
    place = np.arange(made)[None, :]
    if form.operator == "conv":
        where = place * form.strides[axis] - form.begins[axis] + reach
        inside = (where >= 0) & (where < size)
    else:
        ahead = place + form.begins[axis] - reach
        inside = (ahead >= 0) & (ahead < size * form.strides[axis]) & (ahead % form.strides[axis] == 0)
    return np.asarray(inside.mean(axis=1))


def correctable(layer: Layer) -> bool:
    """True where the layer has a bias with one element for each output channel."""
    bias = layer.operand.bias
    return bias is not None and bias.size == layer.form.groups * layer.form.rows


def corrected_bias(layer: Layer, values: NDArray[Any], mean: Wide, target: Wide | None = None) -> Array:
    """The layer's bias for weights ``values`` (code * scale). mean: [groups, columns] of what the quantised layer
    reads; target: of what the float layer reads, where that differs. A channel whose bias would leave its half of int32
    keeps the old one.
    """
    bias = layer.operand.bias
    assert bias is not None  # only correctable layers come here
    form = layer.form
    matrix = form.to_matrix(layer.operand.weights.astype(np.float64))
    shift = lost_mean(matrix, form.to_matrix(np.asarray(values, np.float64)), mean, target)
    return within_bias_limit(layer, bias.astype(np.float64) + shift.reshape(bias.shape))


def lost_mean(
    weights: NDArray[np.floating], rounded: NDArray[np.floating], mean: Wide, target_mean: Wide | None = None
) -> Wide:
    """What to add to the bias, float64 [groups * rows]: W mean(t) - W_hat mean(x).

    weights, rounded: W and W_hat (real values), [groups, rows, columns]; mean: of the columns that the quantised layer
    reads, [groups, columns]; target_mean: of the float ones, where they are not the same.
    """
    wide, made = np.asarray(weights, np.float64), np.asarray(rounded, np.float64)
    if target_mean is None:
        return product(wide - made, mean[:, :, None]).reshape(-1)
    return (product(wide, target_mean[:, :, None]) - product(made, mean[:, :, None])).reshape(-1)


def within_bias_limit(layer: Layer, made: Wide) -> Array:
    """The bias ``made``, float64, with the old value of each channel whose new one would leave its half of int32."""
    bias = layer.operand.bias
    assert bias is not None  # only correctable layers come here
    scales = np.asarray(layer.parameters.scales) * layer.source.scale
    steps = made / np.tile(scales, bias.shape[-1] // len(scales))
    return np.where(np.abs(steps) < BIAS_LIMIT, made, bias).astype(np.float32)
