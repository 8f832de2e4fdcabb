"""Room ``graph/transforms``: how much each channel is scaled. Ranges and weights as arrays enter, exponents leave.

A tensor t becomes t / d, one divisor d_j a channel, with (Xiao et al., SmoothQuant, arXiv 2211.10438, eq. 4)

    d_j = A_j^alpha / W_j^(1 - alpha)

A_j: the channel's largest magnitude, relative to its tensor's (of several tensors that share the factor, the largest);
W_j: the largest magnitude of the weights that read it, each relative to its own row's largest, since a row has a scale
of its own. alpha = 1/2 with A_j from the rows of the weights that make it is cross-layer equalisation: both ranges
become sqrt(A_j W_j) (Nagel et al., arXiv 1906.04721, eq. 11). Where only depthwise operators read a channel, no weight
of another channel shares its scale, and d_j = A_j.

Divisors are gauged so that the largest of A_j / d_j stays 1 in every set of tensors that share channels, then rounded
up to powers of two, with which products and sums of floats are exact, and kept within 2**-limit .. 2**limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.graph.transforms.channels import FIXED, Ids

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """alpha: share of the range's difference that moves into the weights, 0..1; limit: largest power of two."""

    alpha: float = 0.5
    limit: int = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranges:
    """By channel id: float64 magnitudes, 0 for a dead channel, NaN where nothing is known.

    activation: A_j; weights: W_j, NaN where only depthwise operators read the channel; family: ids that share a gauge.
    """

    activation: Values
    weights: Values
    family: Ids


def divisors(ranges: Ranges, strength: Strength) -> Values:
    """log2 of d_j before rounding, float64 by id; 0 for FIXED and for channels that are dead or unknown."""
    known = np.isfinite(ranges.activation) & (ranges.activation > 0.0)
    known[FIXED] = False
    alone = np.isnan(ranges.weights)
    activation = np.log2(np.where(known, ranges.activation, 1.0))
    least = 2.0 ** (-2 * strength.limit)  # a column of zeros asks for no scale of its own
    weights = np.log2(np.maximum(np.where(alone, 1.0, ranges.weights), least))
    alpha = np.where(alone, 1.0, strength.alpha)
    exponent = alpha * activation - (1.0 - alpha) * weights
    left = np.full(len(exponent), -np.inf)
    np.maximum.at(left, ranges.family[known], (activation - exponent)[known])
    gauge = np.where(np.isfinite(left), left, 0.0)[ranges.family]
    return np.where(known, exponent + gauge, 0.0)


def exponents(ranges: Ranges, strength: Strength) -> Ids:
    """Powers of two by which tensors are multiplied: int64 by id, -ceil(log2 d_j) within the limit."""
    exact = divisors(ranges, strength)
    rounded = np.ceil(np.round(exact, 9))  # a quotient that is a power of two but for its last bits stays one
    return -np.clip(rounded, -strength.limit, strength.limit).astype(np.int64)
