"""quant: what a tensor is expected to lose to a number format, from its counts alone. Statistics in, numbers out.

Inside a bucket the elements are taken as spread evenly, so the expected squared error is an integral in closed form:

- an affine grid of step s: with u = x / s and f the distance of u from its nearest integer, the squared rounding error
  is s^2 f^2, and the integral of f^2 from 0 to u is floor(u + 1/2) / 12 + (f^3) / 3. Exact for elements spread evenly
  or equal, so buckets narrower than a step (x near zero, saturated values) cost what they cost, not s^2 / 12;
- beyond the ends of the grid: (x - end)^2, the integral (b^3 - a^3) / 3 of distances a..b, exactly as there;
- float16 (IEEE 754-2008, 11 significant bits, least step 2^-24): a step of 2^(e - 10) within the bucket's power of two,
  uniform noise step^2 / 12; everything from 65520 up becomes infinite.

The SQNR (quant/sqnr.py) is that of one tensor on its way through the format, as if all before it were float; it says
which tensor to look at first, not what the model's outputs lose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npubake.calibration.statistics import TensorStatistics
from npubake.quant.histogram import Histogram, Vector, histogram
from npubake.quant.parameters import LIMITS, TensorParameters
from npubake.quant.sqnr import sqnr_db

FLOAT16_OVERFLOW = 65520.0  # halfway from 65504 to the next step: rounds to infinity
_FLOAT16_BITS = 10
_FLOAT16_LEAST_EXPONENT = -14
_NARROW = 1e-4  # of a step: a narrower bucket is taken at its middle, where the difference of integrals would cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Mean squares over all elements of a tensor. signal: of x; rounding, clipping: of the error, by where it arises
    (clipping is infinite where float16 overflows).
    """

    signal: float
    rounding: float
    clipping: float

    @property
    def error(self) -> float:
        return self.rounding + self.clipping

    @property
    def sqnr_db(self) -> float:
        """Infinite where nothing is lost; -inf where the error is infinite, or there was no signal at all."""
        return sqnr_db(self.signal, self.error)


def expected_error(statistics: TensorStatistics, parameters: TensorParameters) -> ExpectedError:
    """Of a tensor held with ``parameters``. Raises ValueError where nothing was counted."""
    found = _counted(statistics)
    low, high = LIMITS[parameters.dtype]
    lowest = parameters.scale * (low - parameters.zero_point)
    highest = parameters.scale * (high - parameters.zero_point)
    left, right = np.clip(found.low, lowest, highest), np.clip(found.high, lowest, highest)
    rounding = _part(found, left, right) * _rounding(left, right, parameters.scale)
    clipping = _clipping(found, highest) + _clipping(found.mirrored(), -lowest)
    count = float(found.counts.sum())
    return ExpectedError(
        signal=_signal(found, count),
        rounding=float(np.sum(found.counts * rounding)) / count,
        clipping=float(np.sum(clipping)) / count,
    )


def expected_float16_error(statistics: TensorStatistics) -> ExpectedError:
    """Of a tensor rounded to float16. Raises ValueError where nothing was counted."""
    found = _counted(statistics)
    magnitude = np.maximum(np.abs(found.low), np.abs(found.high))
    _, exponent = np.frexp(np.minimum(np.abs(found.low), np.abs(found.high)))
    step = np.ldexp(1.0, np.maximum(exponent - 1, _FLOAT16_LEAST_EXPONENT) - _FLOAT16_BITS)
    # a single value is exact or not; spread ones take the noise of the step; what is below half the least step is lost
    noise = np.where(found.low == found.high, (found.low - _rounded(found.low)) ** 2, step * step / 12.0)
    noise = np.where(magnitude < step / 2.0, found.mean_squares, noise)
    count = float(found.counts.sum())
    over = bool(np.any(magnitude >= FLOAT16_OVERFLOW))
    return ExpectedError(
        signal=_signal(found, count),
        rounding=float(np.sum(found.counts * noise)) / count,
        clipping=math.inf if over else 0.0,
    )


def _counted(statistics: TensorStatistics) -> Histogram:
    found = histogram(statistics)
    if found.counts.size == 0:
        raise ValueError("nothing was counted of this tensor")
    return found


def _signal(found: Histogram, count: float) -> float:
    return float(np.sum(found.counts * found.mean_squares)) / count


def _part(found: Histogram, left: Vector, right: Vector) -> Vector:
    """The share of each bucket that lies within ``left``..``right``: a single value is inside or outside whole."""
    width = found.high - found.low
    inside = (left == found.low) & (right == found.high)
    return np.asarray(np.where(width > 0.0, (right - left) / np.where(width > 0.0, width, 1.0), inside.astype(float)))


def _rounding(left: Vector, right: Vector, step: float) -> Vector:
    """Mean squared rounding error of values spread evenly over each left..right."""
    start, stop = left / step, right / step
    width = stop - start
    middle = (start + stop) / 2.0
    narrow = width < _NARROW
    spread = (_integral(stop) - _integral(start)) / np.where(narrow, 1.0, width)
    single = (middle - np.rint(middle)) ** 2
    return np.asarray(np.where(narrow, single, spread) * step * step)


def _integral(place: Vector) -> Vector:
    """Of the squared distance from the nearest integer, from 0 to ``place``."""
    nearest = np.floor(place + 0.5)
    return np.asarray(nearest / 12.0 + (place - nearest) ** 3 / 3.0)


def _clipping(found: Histogram, end: float) -> Vector:
    """Summed squared distance from ``end`` of the elements of each bucket that lie above it."""
    near, far = np.maximum(found.low - end, 0.0), np.maximum(found.high - end, 0.0)
    mean = (near * near + near * far + far * far) / 3.0
    width = found.high - found.low
    share = np.where(width > 0.0, (far - near) / np.where(width > 0.0, width, 1.0), 1.0)
    return np.asarray(found.counts * mean * share)


def _rounded(values: Vector) -> Vector:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float64)
