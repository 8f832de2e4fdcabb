"""tuning: quantisers that can be learned, and their gradients by hand. Arrays in, arrays out; compiled.

Activation and weight scales: LSQ, Esser and others, *Learned Step Size Quantization*, arXiv 1902.08153: rounding passes
gradients through as if it were not there, so that d x_hat / d scale = rint(x / scale) - x / scale between the limits
and the limit itself beyond. Zero points: Bhalgat and others, *LSQ+*, arXiv 2004.09576: -scale beyond the limits, 0
between. Rounding: Nagel and others, *Up or Down? Adaptive Rounding*, arXiv 2004.10568: a code is its floor plus
h(v) = clip(1.2 * sigmoid(v) - 0.1, 0, 1), pressed to 0 or 1 by 1 - |2 h - 1|^beta while beta falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Wide = NDArray[np.float64]
Limit = NDArray[np.float64] | float
_STRETCH, _SHIFT = 1.2, -0.1  # zeta - gamma and gamma of arXiv 2004.10568, eq. 23
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-12  # Adam, Kingma and Ba, arXiv 1412.6980; gradients here may be small


def fake_quantised(values: NDArray[Any], scale: NDArray[Any] | float, low: Limit, high: Limit) -> Wide:
    """scale * clip(rint(value / scale), low, high), float64; low and high are codes less the zero point."""
    return np.asarray(scale * np.clip(np.rint(np.asarray(values, np.float64) / scale), low, high))


def scale_gradient(
    values: NDArray[Any], scale: NDArray[Any] | float, low: Limit, high: Limit, upstream: Wide
) -> tuple[Wide, Wide]:
    """``upstream`` * d x_hat / d scale and ``upstream`` * d x_hat / d zero point, both in the shape of ``values``."""
    ratio = np.asarray(values, np.float64) / scale
    codes = np.clip(np.rint(ratio), low, high)
    beyond = (ratio < low) | (ratio > high)
    by_scale = np.where(beyond, codes, codes - ratio)
    return upstream * by_scale, np.where(beyond, -scale * upstream, 0.0)


def unrounded(fraction: Wide) -> Wide:
    """v with h(v) = fraction, for fractions inside (0, 1); those at an end are taken a hundredth inside."""
    inside = (np.clip(fraction, 0.01, 0.99) - _SHIFT) / _STRETCH
    return np.asarray(np.log(inside / (1 - inside)))


@njit(nogil=True, cache=True)
def soften(variables: Any, into: Any) -> None:
    """h(v) of every element, both float64 vectors."""
    for at in range(variables.size):
        into[at] = min(max(_STRETCH / (1.0 + np.exp(-variables[at])) + _SHIFT, 0.0), 1.0)


@njit(nogil=True, cache=True)
def rounding_gradient(variables: Any, gradient: Any, beta: float, weight: float) -> None:
    """Turn d loss / d h into d (loss + weight * sum(1 - |2 h - 1|^beta)) / d v, in place; float64 vectors."""
    for at in range(variables.size):
        sigmoid = 1.0 / (1.0 + np.exp(-variables[at]))
        h = _STRETCH * sigmoid + _SHIFT
        if h <= 0.0 or h >= 1.0:
            gradient[at] = 0.0
            continue
        apart = 2.0 * h - 1.0
        pressed = -weight * beta * 2.0 * abs(apart) ** (beta - 1.0)
        slope = gradient[at] + (pressed if apart > 0 else -pressed)
        gradient[at] = slope * _STRETCH * sigmoid * (1.0 - sigmoid)


@njit(nogil=True, cache=True)
def adam(values: Any, gradient: Any, memory: Any, rate: float, step: int) -> None:
    """One step of Adam, in place. memory: float64 [2, size], zero before step 1 (first and second moments)."""
    first, second = 1.0 - _FIRST**step, 1.0 - _SECOND**step
    for at in range(values.size):
        memory[0, at] = _FIRST * memory[0, at] + (1.0 - _FIRST) * gradient[at]
        memory[1, at] = _SECOND * memory[1, at] + (1.0 - _SECOND) * gradient[at] * gradient[at]
        values[at] -= rate * (memory[0, at] / first) / (np.sqrt(memory[1, at] / second) + _TINY)
