"""A Softmax over many classes, none of them likely: the integers must hold more than zeros."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fixedpoint.builds import all_runs, calibrated, float_model, node, session


@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
@pytest.mark.parametrize("classes", [1000, 100_000])
def test_many_even_classes_are_not_lost(lane: str, classes: int) -> None:
    rng = np.random.default_rng(5)
    model = float_model([node("Softmax", "x", "y", axis=1)], {"x": [1, classes]}, {}, ["y"])
    feeds = {"x": rng.normal(0, 0.5, (1, classes)).astype(np.float32)}
    want = session(model).run(["y"], feeds)[0].astype(np.float64)
    assert want.max() < 1 / 16
    for run in all_runs(calibrated(model, [feeds], lane).lower().model, feeds):
        got = run["y"].astype(np.float64)
        assert (want * got).sum() / np.sqrt((want**2).sum() * (got**2).sum()) > 0.9995
