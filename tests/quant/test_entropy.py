"""quant: the threshold of least KL against the algorithm as the talk writes it, bin by bin and group by group."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.quant.entropy import BINS, least_entropy_range
from npubake.quant.histogram import Histogram

Bins = NDArray[np.float64]


def linear(bins: Bins) -> Histogram:
    """One bucket a linear bin over 0..BINS (of width 1): making linear bins of them loses nothing."""
    used = np.flatnonzero(bins)
    low = used.astype(np.float64)
    return Histogram(low=low, high=low + 1.0, counts=bins[used])


def divergence(bins: Bins, end: int, levels: int) -> float:
    """KL of the reference and the quantised histogram that keep the first ``end`` bins."""
    inside = bins[:end].copy()
    reference = inside.copy()
    reference[-1] += bins[end:].sum()
    step = end / levels
    quantised = np.zeros(end)
    edges = [min(int(np.rint((k - 0.5) * step)), end) if k else 0 for k in range(levels + 1)] + [end]
    for first, last in pairwise(edges):
        used = reference[first:last] > 0
        if used.any():
            quantised[first:last][used] = inside[first:last].sum() / used.sum()
    p, q = reference / reference.sum(), quantised / quantised.sum()
    if np.any(q[p > 0] == 0):
        return float("inf")
    return float(np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0])))


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_is_the_one_of_the_plain_algorithm(seed: int) -> None:
    generator = np.random.default_rng(seed)
    bins = np.floor(generator.gamma(0.5, 40.0, BINS) * np.exp(-np.arange(BINS) / 250.0 / (1 + seed)) * 50)
    bins[0] = 0  # the first bucket touches zero and would be left out
    bins[generator.integers(1500, BINS, 12)] = 1
    bins[-1] = 1
    found = least_entropy_range(linear(bins), 255, asymmetric=True)
    assert found.low == 0.0
    tried = np.unique(np.linspace(255, BINS, 64).astype(np.int64))
    costs = {int(end): divergence(bins, int(end), 255) for end in tried}
    assert found.high in costs
    assert costs[int(found.high)] <= min(costs.values()) * (1 + 1e-9) + 1e-12
    assert found.high < BINS  # the case is one where something is cut


def test_outliers_a_million_times_further_out_than_the_rest_are_cut() -> None:
    low = np.linspace(1.0, 4.0, 300)
    many = Histogram(low=low, high=low + 0.01, counts=np.full(300, 1000.0))
    far = Histogram(
        low=np.append(many.low, 4e6), high=np.append(many.high, 4e6), counts=np.append(many.counts, 1.0)
    )  # fmt: skip
    assert least_entropy_range(far, 255, asymmetric=True).high < 40.0
