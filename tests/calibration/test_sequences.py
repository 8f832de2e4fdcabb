"""calibration: examples of a language model against the lengths that its preset states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.calibration.sequences import length_fault, padding_faults, trailing_zeros

WORDS = ("batch", "sequence", "hidden")


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ((1, 8, 4), None),
        ((8, 4), None),  # without its batch of one
        ((1, 6, 4), "sequence is 6"),
        ((6, 4), "sequence is 6"),
        ((1, 8, 5), "hidden is 5"),
        ((8,), None),  # another number of axes: said by the check of shapes
    ],
)
def test_an_axis_of_another_length_is_named(shape: tuple[int, ...], word: str | None) -> None:
    fault = length_fault(np.zeros(shape, np.float32), WORDS, (1, 8, 4), where="a.npy", name="embeddings")
    assert (fault is None) == (word is None)
    if fault is not None and word is not None:
        assert word in fault.what
        assert "'embeddings'" in fault.what
        assert fault.where == "a.npy"


def test_trailing_rows_of_zeros_are_counted_along_their_axis() -> None:
    value = np.ones((1, 5, 3), np.float32)
    value[0, 1] = 0.0  # in the middle: not padding
    assert trailing_zeros(value, 1) == 0
    value[0, 3:] = 0.0
    assert trailing_zeros(value, 1) == 2
    assert trailing_zeros(np.zeros((1, 5, 3)), 1) == 5
    assert trailing_zeros(value, 2) == 0


def test_padded_examples_are_refused_where_whole_sequences_are_due() -> None:
    embeddings = np.ones((1, 4, 2), np.float32)
    embeddings[0, 3:] = 0.0
    stored: dict[str, NDArray[Any]] = {
        "embeddings": embeddings,
        "mask": np.zeros((1, 4, 6), np.float32),
        "positions": np.zeros((1, 4), np.int64),
    }
    axes = {"embeddings": WORDS, "mask": ("batch", "sequence", "total"), "positions": ("batch", "sequence")}
    (fault,) = padding_faults(stored, axes, padded=False, where="example 3")
    assert (fault.where, "'embeddings' ends in 1 rows" in fault.what) == ("example 3", True)
    assert list(padding_faults(stored, axes, padded=True, where="example 3")) == []


def test_inputs_of_one_example_are_padded_alike() -> None:
    short, whole = np.ones((1, 4, 2), np.float32), np.ones((1, 4, 2), np.float32)
    short[0, 2:] = 0.0
    axes = {"text": WORDS, "pixels": WORDS}
    (fault,) = padding_faults({"text": short, "pixels": whole}, axes, padded=True, where="e")
    assert "text 2, pixels 0" in fault.what
    assert list(padding_faults({"text": short, "pixels": short}, axes, padded=True, where="e")) == []
