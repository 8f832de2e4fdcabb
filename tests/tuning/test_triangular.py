"""Compiled kernels against LAPACK through numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from npubake.tuning.triangular import add_outer, factor, round_in_order, solve


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 100])
def test_factor_and_solve(size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.normal(size=(size, size + 5))
    matrix, values = x @ x.T, rng.normal(size=(size, 7))
    upper, solution = matrix.copy(), values.copy()
    factor(upper)
    np.testing.assert_allclose(np.triu(upper), linalg.cholesky(matrix), rtol=1e-8, atol=1e-10)
    solve(upper, solution)
    np.testing.assert_allclose(solution, linalg.solve(matrix, values, assume_a="pos"), rtol=1e-6, atol=1e-9)


def test_a_pivot_that_rounding_has_eaten_makes_its_column_independent() -> None:
    matrix = np.array([[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 9.0]])  # the second column is half the first
    factor(matrix)
    least = np.sqrt((4 + 1 + 9) / 3 * 1e-9)
    np.testing.assert_allclose(np.triu(matrix), [[2, 1, 0], [0, least, 0], [0, 0, 3]], rtol=1e-12)


@pytest.mark.parametrize("terms", [1, 3, 4, 9])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_outer_products_are_added(terms: int, sign: float) -> None:
    rng = np.random.default_rng(terms)
    into, left, right = rng.normal(size=(5, 6)), rng.normal(size=(terms, 5)), rng.normal(size=(terms, 6))
    wanted = into + sign * np.einsum("ki,kj->ij", left, right)
    whole, upper = into.copy(), into.copy()
    add_outer(whole, left, right, sign, False)
    add_outer(upper, left, right, sign, True)
    np.testing.assert_allclose(whole, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.triu(upper), np.triu(wanted), rtol=1e-12, atol=1e-12)


def test_feedback_reaches_the_rows_after() -> None:
    """By hand: 0.4 rounds to 0, its error 0.4 makes 0.3 into 0.7, which rounds to 1; 9 is clipped at 2."""
    weights, codes = np.array([[0.4], [0.3], [9.0]]), np.empty((3, 1))
    feedback = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    grid = np.stack([np.ones((3, 1)), np.zeros((3, 1))])
    for block in (1, 2, 3):
        round_in_order(weights, codes, feedback, grid, np.array([-2.0, 2.0]), block)
        assert codes[:, 0].tolist() == [0.0, 1.0, 2.0]
