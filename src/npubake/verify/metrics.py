"""verify: figures of the difference of two tensors. numpy in, sums and figures out; no onnx.

With reference r and candidate c over all elements of all examples, in float64:

- cosine = sum(r c) / sqrt(sum(r r) * sum(c c)); both all zero: 1; one of them all zero: 0.
- SQNR in dB (quant/sqnr.py) of sum(r r) and sum((r - c)^2). No error: EXACT_DB. An all-zero reference with an error:
  -EXACT_DB.
- max_abs = max |r - c|.

NaN or Inf on either side makes every figure NaN, and NaN passes no gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from npubake.quant.sqnr import sqnr_db

EXACT_DB = 400.0  # above what float64 sums can tell from exact: 20 log10(2**53) is 319 dB


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """cosine: -1..1; sqnr_db: dB, within +-EXACT_DB; max_abs: in the reference's unit."""

    cosine: float
    sqnr_db: float
    max_abs: float

    def to_json(self) -> dict[str, float | None]:
        """NaN has no JSON form and is written as null."""
        return {
            name: None if math.isnan(value) else value
            for name, value in (("cosine", self.cosine), ("sqnr_db", self.sqnr_db), ("max_abs", self.max_abs))
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What the figures are made of, added up over examples: sum r c, r r, c c, (r - c)^2 and max |r - c|."""

    product: float = 0.0
    reference: float = 0.0
    candidate: float = 0.0
    error: float = 0.0
    max_abs: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        worst = max(self.max_abs, other.max_abs)
        if math.isnan(self.max_abs) or math.isnan(other.max_abs):
            worst = math.nan
        return Sums(
            product=self.product + other.product,
            reference=self.reference + other.reference,
            candidate=self.candidate + other.candidate,
            error=self.error + other.error,
            max_abs=worst,
        )

    def figures(self) -> Figures:
        sums = (self.product, self.reference, self.candidate, self.error, self.max_abs)
        if not all(math.isfinite(value) for value in sums):
            return Figures(cosine=math.nan, sqnr_db=math.nan, max_abs=math.nan)
        decibels = sqnr_db(self.reference, self.error, EXACT_DB)
        return Figures(cosine=self._cosine(), sqnr_db=decibels, max_abs=self.max_abs)

    def _cosine(self) -> float:
        if self.reference == 0.0 or self.candidate == 0.0:
            return 1.0 if self.reference == self.candidate else 0.0
        ratio = self.product / (math.sqrt(self.reference) * math.sqrt(self.candidate))
        return min(max(ratio, -1.0), 1.0)


@njit(nogil=True, cache=True)
def _sums(reference: Any, candidate: Any, factor: float, zero_point: float) -> tuple[float, float, float, float, float]:
    """The five sums of two vectors of one length, in blocks, so that rounding does not grow with the length.

    The casts are written out: numba's ``float()`` keeps a float32 a float32.
    """
    product, left, right, error, worst = 0.0, 0.0, 0.0, 0.0, 0.0
    for start in range(0, reference.size, 1024):
        stop = min(start + 1024, reference.size)
        p, a, b, e = 0.0, 0.0, 0.0, 0.0
        for at in range(start, stop):
            r, c = np.float64(reference[at]), (np.float64(candidate[at]) - zero_point) * factor
            difference = r - c
            p += r * c
            a += r * r
            b += c * c
            e += difference * difference
            worst = max(worst, abs(difference))
        product, left, right, error = product + p, left + a, right + b, error + e
    return product, left, right, error, worst


def compare(reference: NDArray[Any], candidate: NDArray[Any], *, factor: float = 1.0, zero_point: float = 0.0) -> Sums:
    """Sums of one example's tensor pair; any real dtypes, compared in float64. ValueError where the sizes differ.

    factor, zero_point: the candidate stands for ``factor * (candidate - zero_point)``.
    """
    if reference.size != candidate.size:
        raise ValueError(f"tensors of {reference.size} and {candidate.size} elements cannot be compared")
    product, left, right, error, worst = _sums(_flat(reference), _flat(candidate), factor, zero_point)
    return Sums(product=product, reference=left, candidate=right, error=error, max_abs=worst)


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """A vector of a dtype that the kernel knows: float16 and bool are widened."""
    known = values if values.dtype.kind in "iu" or values.dtype.itemsize > 2 else values.astype(np.float32)
    return np.ascontiguousarray(known).reshape(-1)
