"""tuning: the loudest tensors are found by halving groups, against asking about each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.tuning.ranking import worst_first


@given(levels=st.lists(st.floats(0, 1e6), min_size=1, max_size=70, unique=True), count=st.integers(1, 12))
def test_additive_noise_is_ranked_as_if_each_were_asked(levels: list[float], count: int) -> None:
    noise = {f"t{index}": level for index, level in enumerate(levels)}
    found = worst_first(list(noise), lambda several: [max(noise[name] for name in names) for names in several], count)
    assert found == sorted(noise, key=lambda name: -noise[name])[:count]


@pytest.mark.parametrize("size", [64, 100])
def test_few_questions_find_the_loudest(size: int) -> None:
    asked: list[int] = []

    def noises(several: Sequence[Sequence[str]]) -> list[float]:
        asked.extend(len(names) for names in several)
        return [sum({"t17": 50.0, "t18": 40.0}.get(name, 0.01) for name in names) for names in several]

    assert worst_first([f"t{index}" for index in range(size)], noises, 2) == ["t17", "t18"]
    assert len(asked) <= 18


def test_nothing_to_rank() -> None:
    assert worst_first([], lambda _several: [], 3) == []
    assert worst_first(["a"], lambda _several: [], 0) == []
