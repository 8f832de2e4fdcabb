"""tuning: examples that are read when they are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.tuning.examples import Examples
from tests.tuning.networks import prepare


def test_examples_are_those_at_the_indices(tmp_path: Path) -> None:
    prepare(tmp_path, count=6)
    with SampleSet.open(tmp_path / "samples.npz") as samples:
        chosen = Examples(samples, [4, 1, 5])
        assert list(chosen) == [4, 1, 5]
        assert len(chosen) == 3
        for index, feeds in chosen.items():
            np.testing.assert_array_equal(feeds["x"], samples.read(index)["x"])
        with pytest.raises(KeyError):
            chosen[0]
