"""Exact products: the same bits in any order of summation, and the error that the module states."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.tuning.exact_products import gram, integer_product, kept_bits, product, sliced


@pytest.mark.parametrize(("terms", "bits"), [(1, 26), (2, 26), (256, 22), (257, 22), (4096, 20), (4097, 20)])
def test_bits_keep_every_sum_below_two_to_the_53(terms: int, bits: int) -> None:
    assert kept_bits(terms) == bits
    assert terms * 4**bits <= 2**53 < terms * 4 ** (bits + 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_any_order_of_terms_gives_the_same_bits(seed: int, terms: int) -> None:
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(3, terms)) * np.exp2(rng.integers(-30, 30, (3, 1)))
    right = rng.normal(size=(terms, 4)) * np.exp2(rng.integers(-30, 30, (1, 4)))
    order = rng.permutation(terms)
    assert np.array_equal(product(left, right), product(left[:, order], right[order]))
    products, sums = gram(left)
    again, others = gram(left[:, order])
    assert np.array_equal(products, again)
    assert np.array_equal(sums, others)
    assert np.array_equal(products, products.T)


def test_a_product_is_the_exact_sum_of_its_rounded_operands() -> None:
    rng = np.random.default_rng(5)
    left, right = rng.normal(size=(2, 37)), rng.normal(size=(37, 3))
    bits = kept_bits(37)
    (first, rows), (second, columns) = sliced(left, -1, bits), sliced(right, -2, bits)
    found = product(left, right)
    for row in range(2):
        for column in range(3):
            exact = sum(Fraction(int(first[row, k])) * int(second[k, column]) for k in range(37))
            assert Fraction(found[row, column]) == exact * Fraction(rows[row, 0]) * Fraction(columns[0, column])


def test_rounding_is_relative_to_the_largest_of_a_vector() -> None:
    values = np.array([[3.0, 1e-3, -0.7], [0.0, 0.0, 0.0], [1.0, -2.0, 0.5]])
    whole, units = sliced(values, -1, 22)
    assert units[0].tolist() == units[2].tolist() == [2.0 ** (2 - 22)]  # 3 and 2 lie below 2**2
    assert np.abs(whole * units - values).max() <= 2.0 ** (2 - 22 - 1)
    assert np.abs(whole).max() <= 2**22
    assert (whole == np.rint(whole)).all()


def test_vectors_of_very_different_sizes() -> None:
    values = np.array([[1e-40, 3e-41], [1e38, -3e38], [1e-300, 1e-301]])
    products, sums = gram(values[:2].astype(np.float32))
    wanted = values[:2].astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(products, wanted @ wanted.T, rtol=1e-6)
    np.testing.assert_allclose(sums, wanted.sum(axis=1), rtol=1e-6)
    assert product(values[2:], np.ones((2, 1))).tolist() == [[0.0]]


def test_products_of_a_batch_are_products_of_its_members() -> None:
    left, right = np.random.default_rng(6).normal(size=(2, 4, 5, 6)), np.random.default_rng(7).normal(size=(4, 6, 3))
    found = product(left[0], right)
    np.testing.assert_allclose(found, np.einsum("gmk,gkn->gmn", left[0], right), rtol=1e-5, atol=1e-5)
    assert np.array_equal(found[2], product(left[0, 2], right[2]))


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([4, 8, 16]))
def test_products_with_integers(seed: int, terms: int, bits: int) -> None:
    """In any order the same bits, and nearer than with both sides rounded: the left keeps 53 bits less those needed."""
    rng = np.random.default_rng(seed)
    left, codes = rng.normal(size=(3, terms)), rng.integers(-(2**bits), 2**bits + 1, (terms, 4)).astype(np.float32)
    found, order = integer_product(left, codes, bits), rng.permutation(terms)
    assert np.array_equal(found, integer_product(left[:, order], codes[order], bits))
    wanted = np.einsum("mk,kn->mn", left, codes.astype(np.float64))
    left_bits = 53 - bits - (terms - 1).bit_length()
    assert np.abs(found - wanted).max() <= terms * 2.0**bits * np.abs(left).max() * 2.0**-left_bits * 1.001
