"""tuning: matrix products whose bits do not depend on BLAS, threads or CPU. numpy in, numpy out.

A BLAS sums in an order that its threads and kernels choose, so float64 results differ in their last bits. Here each
operand is first rounded to integers of so few bits that every partial sum is an integer of at most 2**53: float64
holds them all exactly, so that any order, with or without fused multiply-add, gives the same bits. One power of two
scales each row of the left operand and each column of the right one: the rounding is relative to the largest element of
that vector. This is one slice of the scheme of Ozaki, Ogita, Oishi and Rump, *Error-free transformations of matrix
multiplication by using fast routines of matrix multiplication*, Numerical Algorithms 59 (2012). For 256 terms a vector
keeps 22 bits, for 4,096 it keeps 20.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Wide = NDArray[np.float64]
_EXACT_BITS = 53
_LEAST_EXPONENT = -500  # float32 ends at -149; two such factors still lie in float64's range


def kept_bits(terms: int) -> int:
    """Bits that each operand of a sum of ``terms`` products may have: 2 * bits + ceil(log2(terms)) <= 53."""
    return (_EXACT_BITS - max(terms - 1, 0).bit_length()) // 2


def sliced(values: NDArray[Any], axis: int, bits: int) -> tuple[Wide, Wide]:
    """Integers |n| <= 2**bits (float64) and powers of two u [.., 1, ..] along ``axis`` with values ~ n * u.

    The error is at most u / 2, u * 2**bits being at most twice the vector's largest |value|. Values whose vector stays
    below 2**-500 become zero.
    """
    largest = np.maximum(
        values.max(axis=axis, keepdims=True, initial=0), -values.min(axis=axis, keepdims=True, initial=0)
    )
    exponents = np.maximum(np.frexp(largest)[1], _LEAST_EXPONENT) - bits
    whole = np.multiply(values, np.ldexp(1.0, -exponents), dtype=np.float64)
    return np.rint(whole, out=whole), np.ldexp(1.0, exponents)


def product(left: NDArray[Any], right: NDArray[Any]) -> Wide:
    """``left @ right`` over the last two axes, float64 [..., M, N]; the operands rounded as the module says."""
    bits = kept_bits(left.shape[-1])
    (first, rows), (second, columns) = sliced(left, -1, bits), sliced(right, -2, bits)
    made = first @ second
    made *= rows
    made *= columns
    return np.asarray(made)


def integer_product(left: NDArray[Any], codes: NDArray[Any], bits: int) -> Wide:
    """``left @ codes`` over the last two axes, float64; codes: integers |n| <= 2**bits. ``left`` has the bits left."""
    left_bits = _EXACT_BITS - bits - max(left.shape[-1] - 1, 0).bit_length()
    whole, units = sliced(left, -1, left_bits)
    made = whole @ codes.astype(np.float64, copy=False)
    made *= units
    return np.asarray(made)


def gram(rows: NDArray[Any]) -> tuple[Wide, Wide]:
    """``rows @ rows.T`` [..., K, K] and the rows' sums [..., K], both of the same rounded rows [..., K, P]."""
    whole, units = sliced(rows, -1, kept_bits(rows.shape[-1]))
    products = whole @ whole.swapaxes(-1, -2)
    products *= units
    products *= units.swapaxes(-1, -2)
    return np.asarray(products), np.asarray(whole.sum(axis=-1) * units[..., 0])
