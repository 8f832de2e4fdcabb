"""Room ``tuning``: biases that take up the mean of a layer's error. numpy in, numpy out.

Rounded weights shift each output channel by the mean of its error; the bias gives it back. Analytic: the mean follows
from the means of what the layer reads, Nagel, van Baalen, Blankevoort and Welling, *Data-Free Quantization Through
Weight Equalization and Bias Correction*, arXiv 1906.04721 (there from batch norms, here observed). Empirical: from the
means of the float and of the quantised layer's outputs on examples (the same paper's appendix; Finkelstein, Almog and
Grobman, *Fighting Quantization Bias With Bias*, arXiv 1906.03193).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npubake.tuning.exact_products import product
from npubake.tuning.matrix_form import MatrixForm

Wide = NDArray[np.float64]


def analytic(
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


def empirical(float_mean: NDArray[np.floating], quantised_mean: NDArray[np.floating]) -> Wide:
    """What to add to the bias, float64 [channels]: means by output channel, before any clipping, float less quantised.

    Layers are corrected in order of execution, each one's quantised mean taken with those before it corrected.
    """
    return np.asarray(float_mean, np.float64) - np.asarray(quantised_mean, np.float64)


def column_means(form: MatrixForm, channel_means: NDArray[np.floating]) -> Wide:
    """Means of the columns [groups, columns] from those of the input's channels, as ``observe`` counts them.

    An approximation: every tap is taken to see the whole picture, padding and stride disregarded; exact for 1 x 1
    kernels without stride and for linear layers. A ConvTranspose's tap sees an input at one output position in
    prod(strides): so much is taken of the mean. Means from ``moments`` are right at pads too.
    """
    wide = np.asarray(channel_means, np.float64)
    if form.operator == "linear":
        return wide[None]
    taps = int(np.prod(form.kernel))
    share = 1.0 / np.prod(form.strides) if form.operator == "conv_transpose" else 1.0
    return np.repeat(wide * share, taps).reshape(form.groups, form.columns)


def corrected(bias: NDArray[np.float32] | None, shift: Wide) -> NDArray[np.float32]:
    """``bias`` (None counts as zero) with ``shift`` [channels] added along its last axis, in float64, then float32."""
    start = np.zeros(len(shift)) if bias is None else np.asarray(bias, np.float64)
    return np.asarray(start + shift, np.float32)
