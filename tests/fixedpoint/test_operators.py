"""Every operator's kernel equals the independent evaluator, at every element, optimisation level and thread count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.fixedpoint.builds import all_runs, calibrated
from tests.fixedpoint.operators import OPERATORS

Array = NDArray[Any]


def feeds_of(model: onnx.ModelProto, rng: np.random.Generator, span: float) -> dict[str, Array]:
    """Values of which some lie far outside the calibrated range."""
    return {
        value.name: (rng.normal(0, span, [d.dim_value for d in value.type.tensor_type.shape.dim])).astype(np.float32)
        for value in model.graph.input
    }


def extremes(feeds: Mapping[str, Array], rng: np.random.Generator) -> list[dict[str, Array]]:
    """All highest, all lowest, and a random choice of both."""
    signs: list[Any] = [1, -1, None]
    return [
        {
            name: np.where(rng.random(value.shape) < 0.5, np.float32(1e30), np.float32(-1e30))
            if sign is None
            else np.full_like(value, sign * 1e30)
            for name, value in feeds.items()
        }
        for sign in signs
    ]


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    lane=st.sampled_from(["a8w8", "a16w8"]),
    asymmetric=st.booleans(),
)
def test_kernel_equals_the_evaluator(name: str, seed: int, lane: str, asymmetric: bool) -> None:
    rng = np.random.default_rng(seed)
    model = OPERATORS[name](rng)
    samples = [feeds_of(model, rng, 2.0) for _ in range(2)]
    case = calibrated(model, samples, lane, calibration={"method": "minmax", "asymmetric": asymmetric})
    lowered = case.lower()
    assert not lowered.float_nodes
    assert {entry.group for entry in lowered.certificates} == {group.name for group in case.summary.groups}
    for feeds in (samples[0], feeds_of(model, rng, 6.0), *extremes(samples[0], rng)):
        expected = case.expected(feeds)
        for found in all_runs(lowered.model, feeds):
            for output in expected:
                np.testing.assert_array_equal(found[output], expected[output])
