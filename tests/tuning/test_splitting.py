"""tuning: similar examples stay together, sizes of the two parts, and what makes no difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet
from npubake.tuning.splitting import signature, split, split_samples
from tests.tuning.networks import pictures, write_samples


def scenes(photographs: int, crops: int) -> list[NDArray[np.uint8]]:
    """Crops of photographs of one texture and unlike colours; crop i of photograph i % photographs."""
    generator = np.random.default_rng(3)
    colours = generator.uniform(20, 235, size=(photographs, 2, 3))
    found = []
    for index in range(crops):
        bright, dark = colours[index % photographs]
        mask = generator.random((40, 40, 1)) < 0.27
        found.append(
            np.clip(np.where(mask, bright, dark) + generator.normal(0, 4, (40, 40, 3)), 0, 255).astype(np.uint8)
        )
    return found


@pytest.mark.parametrize("photographs", [8, 11, 16])
def test_crops_of_one_photograph_are_never_on_both_sides(photographs: int) -> None:
    parts = split([signature({"image": crop}) for crop in scenes(photographs, 32)], 0.25)
    assert not {index % photographs for index in parts.judged} & {index % photographs for index in parts.learn}
    assert 4 <= len(parts.judged) <= 8


@settings(max_examples=60, deadline=None)
@given(count=st.integers(4, 90), share=st.floats(0.05, 0.6), seed=st.integers(0, 5))
def test_parts_are_disjoint_whole_and_within_their_sizes(count: int, share: float, seed: int) -> None:
    signatures = list(np.random.default_rng(seed).normal(size=(count, 5)))
    parts = split(signatures, share)
    assert sorted((*parts.learn, *parts.judged)) == list(range(count))
    assert list(parts.judged) == sorted(parts.judged)
    wanted = min(max(round(count * share), 2), 16, count // 2)
    assert len(parts.judged) == wanted  # no two of these examples are alike
    assert split(signatures, share) == parts


def test_unlike_examples_are_spread_evenly() -> None:
    judged = split(list(np.random.default_rng(0).normal(size=(32, 9))), 0.25).judged
    assert np.diff(judged).max() <= 6
    assert np.diff(judged).min() >= 2


def test_equal_examples_are_still_split() -> None:
    parts = split([np.ones(4)] * 12, 0.25)
    assert len(parts.judged) == 3


def test_fewer_than_four_are_all_learned_from(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples.npz", pictures(3))
    with SampleSet.open(tmp_path / "samples.npz") as samples:
        parts = split_samples(samples, 0.25)
    assert parts.learn == (0, 1, 2)
    assert parts.judged == ()


def test_signature_knows_channels_but_not_places() -> None:
    crop = scenes(1, 1)[0]
    turned = np.ascontiguousarray(crop[::-1, ::-1])
    np.testing.assert_array_equal(signature({"image": crop}), signature({"image": turned}))
    planes = np.ascontiguousarray(crop.transpose(2, 0, 1))[None]
    np.testing.assert_array_equal(signature({"image": crop}), signature({"image": planes}))
    assert np.abs(signature({"image": crop}) - signature({"image": crop[..., ::-1]})).max() > 1
