"""tuning: Cholesky factors, triangular solves and sequential rounding, compiled, in one fixed order of sums.

LAPACK and BLAS sum in an order that their threads choose; these kernels do not: element-wise updates only, vectorised
along rows, without fused or reordered arithmetic, so that the bits repeat. They run in one thread and free the
interpreter's lock: who calls them spreads layers over threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_PANEL = 32  # columns factored before the rest is updated: keeps the panel in the second-level cache
_LEAST_PIVOT = 1e-9  # of the mean pivot: below it rounding decides, and the column is taken as independent


@njit(nogil=True, cache=True)
def add_outer(into: Any, left: Any, right: Any, sign: float, triangular: bool) -> None:
    """into[i, :] += sign * sum over k of left[k, i] * right[k, :]; ``triangular``: only for columns >= i (about)."""
    terms, rows, columns = left.shape[0], left.shape[1], right.shape[1]
    whole = terms - terms % 4
    for i in range(rows):
        start = i if triangular else 0
        for k in range(0, whole, 4):
            a, b, c, d = sign * left[k, i], sign * left[k + 1, i], sign * left[k + 2, i], sign * left[k + 3, i]
            for j in range(start, columns):
                into[i, j] += a * right[k, j] + b * right[k + 1, j] + c * right[k + 2, j] + d * right[k + 3, j]
        for k in range(whole, terms):
            a = sign * left[k, i]
            for j in range(start, columns):
                into[i, j] += a * right[k, j]


@njit(nogil=True, cache=True)
def factor(matrix: Any) -> None:
    """Overwrite the upper triangle of a symmetric positive matrix [K, K] with R, R'R = matrix; the rest is not read."""
    size = matrix.shape[0]
    least = 0.0
    for k in range(size):
        least += matrix[k, k]
    least *= _LEAST_PIVOT / size
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        for k in range(first, last):
            if matrix[k, k] <= least:
                matrix[k, k] = np.sqrt(least)
                matrix[k, k + 1 :] = 0.0
            else:
                matrix[k, k] = np.sqrt(matrix[k, k])
                matrix[k, k + 1 :] /= matrix[k, k]
            for i in range(k + 1, last):
                step = matrix[k, i]
                for j in range(i, size):
                    matrix[i, j] -= step * matrix[k, j]
        panel = matrix[first:last, last:]
        add_outer(matrix[last:, last:], panel, panel, -1.0, True)


@njit(nogil=True, cache=True)
def solve(upper: Any, values: Any) -> None:
    """Overwrite ``values`` [K, N] with the solution Y of R'R Y = values, R the upper triangle of ``upper``."""
    size = upper.shape[0]
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        for k in range(first, last):
            values[k] /= upper[k, k]
            for i in range(k + 1, last):
                values[i] -= upper[k, i] * values[k]
        add_outer(values[last:], upper[first:last, last:], values[first:last], -1.0, False)
    for last in range(size, 0, -_PANEL):
        first = max(last - _PANEL, 0)
        for k in range(last - 1, first - 1, -1):
            values[k] /= upper[k, k]
            for i in range(first, k):
                values[i] -= upper[i, k] * values[k]
        add_outer(values[:first], upper[:first, first:last].T, values[first:last], -1.0, False)


@njit(nogil=True, cache=True)
def round_in_order(weights: Any, codes: Any, feedback: Any, grid: Any, limits: Any, block: int) -> None:
    """Codes of ``weights`` [K, N], row by row, into ``codes``: clip(rint(t / scale + offset), *limits).

    Row j's t is its weights plus the sum over earlier rows i of feedback[i, j] * error[i], error being the weights less
    what their codes stand for. feedback: [K, K], read above the diagonal; grid: (scales, offsets) [2, K, N].
    ``block`` rows are rounded before the rest hears of it: it changes no sum but its grouping.
    """
    size, width = weights.shape
    errors = np.empty((min(block, size), width))
    codes[:] = weights
    for first in range(0, size, block):
        last = min(first + block, size)
        for j in range(first, last):
            for n in range(width):
                code = np.rint(codes[j, n] / grid[0, j, n] + grid[1, j, n])
                code = min(max(code, limits[0]), limits[1])
                errors[j - first, n] = weights[j, n] - grid[0, j, n] * (code - grid[1, j, n])
                codes[j, n] = code
            for i in range(j + 1, last):
                step = feedback[j, i]
                for n in range(width):
                    codes[i, n] += step * errors[j - first, n]
        add_outer(codes[last:], feedback[first:last, last:], errors[: last - first], 1.0, False)


@njit(nogil=True, cache=True)
def round_groups(codes: Any, hessians: Any, orders: Any, weights: Any, limits: Any, block: int) -> None:
    """Codes of weights [groups, rows, K] into ``codes``, each group's columns in the order ``orders`` [groups, K].

    hessians: [groups, K, K], positive; weights: (weights, scales, offsets) [3, groups, rows, K]. With H = U U', U
    upper triangular, column j hears U[i, j] / U[j, j] of the error of column i: U is the factor of H in reversed order,
    reversed.
    """
    _, groups, rows, size = weights.shape
    backward, feedback = np.empty((size, size)), np.empty((size, size))
    wanted, made, grid = np.empty((size, rows)), np.empty((size, rows)), np.empty((2, size, rows))
    for group in range(groups):
        order = orders[group]
        for i in range(size):
            for j in range(size):
                backward[i, j] = hessians[group, order[size - 1 - i], order[size - 1 - j]]
        factor(backward)
        for i in range(size):
            for j in range(i, size):
                feedback[i, j] = backward[size - 1 - j, size - 1 - i] / backward[size - 1 - j, size - 1 - j]
        for j in range(size):
            for row in range(rows):
                wanted[j, row] = weights[0, group, row, order[j]]
                grid[0, j, row] = weights[1, group, row, order[j]]
                grid[1, j, row] = weights[2, group, row, order[j]]
        round_in_order(wanted, made, feedback, grid, limits, block)
        for j in range(size):
            for row in range(rows):
                codes[group, row, order[j]] = made[j, row]
