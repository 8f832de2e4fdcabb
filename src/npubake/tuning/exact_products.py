"""Room ``tuning``: matrix products whose bits do not depend on BLAS, threads or CPU. numpy in, numpy out.

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


def kept_bits(terms: int) -> int:
    """Bits that each operand of a sum of ``terms`` products may have: 2 * bits + ceil(log2(terms)) <= 53."""
    return (_EXACT_BITS - max(terms - 1, 0).bit_length()) // 2


def sliced(values: NDArray[Any], axis: int, bits: int) -> tuple[Wide, NDArray[np.int32]]:
    """Integers |n| <= 2**bits (float64) and the exponents e [.., 1, ..] along ``axis``: values ~ n * 2**(e - bits).

    Where a vector is zero its exponent is 0. Errors are at most 2**(e - bits - 1).
    """
    wide = np.asarray(values, np.float64)
    exponents = np.frexp(np.abs(wide).max(axis=axis, keepdims=True, initial=0.0))[1]
    return np.rint(np.ldexp(wide, bits - exponents)), exponents


def product(left: NDArray[Any], right: NDArray[Any]) -> Wide:
    """``left @ right`` over the last two axes, float64 [..., M, N]; the operands rounded as the module says."""
    bits = kept_bits(left.shape[-1])
    (first, rows), (second, columns) = sliced(left, -1, bits), sliced(right, -2, bits)
    return np.asarray(np.ldexp(first @ second, rows + columns - 2 * bits))


def gram(rows: NDArray[Any]) -> tuple[Wide, Wide]:
    """``rows @ rows.T`` [..., K, K] and the rows' sums [..., K], both of the same rounded rows [..., K, P]."""
    bits = kept_bits(rows.shape[-1])
    whole, exponents = sliced(rows, -1, bits)
    products = np.ldexp(whole @ whole.swapaxes(-1, -2), exponents + exponents.swapaxes(-1, -2) - 2 * bits)
    return np.asarray(products), np.asarray(np.ldexp(whole.sum(axis=-1), exponents[..., 0] - bits))
