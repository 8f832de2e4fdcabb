"""tuning: examples that are read when they are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npubake.calibration.samples import SampleSet
from npubake.tuning.examples import Examples
from tests.tuning.networks import prepare


def test_examples_are_those_at_the_indices(tmp_path: Path) -> None:
    prepare(tmp_path, count=6)
    with SampleSet.open(tmp_path / "samples.npz") as samples:
        chosen = Examples(samples, [1, 4, 5])
        assert len(chosen) == 3
        for place, index in enumerate((1, 4, 5)):
            np.testing.assert_array_equal(chosen[place]["x"], samples.read(index)["x"])
        assert [entry["x"].tobytes() for entry in chosen[1:]] == [samples.read(i)["x"].tobytes() for i in (4, 5)]
