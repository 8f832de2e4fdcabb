"""Every format of weights between every type of activations equals the independent evaluator, at every element."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixedpoint.builds import Case, all_runs, calibrated
from tests.fixedpoint.operators import WEIGHTED
from tests.fixedpoint.test_operators import extremes, feeds_of

FORMATS: dict[str, dict[str, Any]] = {
    "int4": {"bits": 4},
    "int4_asymmetric": {"bits": 4, "symmetric": False},
    "int4_tensor": {"bits": 4, "granularity": "per_tensor", "symmetric": False},
    "int4_groups": {"bits": 4, "granularity": "per_group", "group_size": 2},
    "int4_groups_asymmetric": {"bits": 4, "granularity": "per_group", "group_size": 2, "symmetric": False},
    "int8_tensor": {"bits": 8, "granularity": "per_tensor"},
    "int8_asymmetric": {"bits": 8, "symmetric": False},
    "int8_groups": {"bits": 8, "granularity": "per_group", "group_size": 2},
    "int16": {"bits": 16},
    "int16_asymmetric": {"bits": 16, "symmetric": False},
}
OPERATORS = [name for name in WEIGHTED if name != "matmul"]


def formatted(name: str, held_as: str, lane: str, rng: np.random.Generator) -> tuple[Case, list[Any]]:
    """A case of which every weighted group, also depthwise and transposed, holds its weights in that format."""
    model = WEIGHTED[name](rng)
    samples = [feeds_of(model, rng, 2.0) for _ in range(2)]
    case = calibrated(model, samples, lane, weights_of_all=f"int{FORMATS[held_as]['bits']}", weights=FORMATS[held_as])
    return case, [samples[0], feeds_of(model, rng, 6.0), *extremes(samples[0], rng)]


@pytest.mark.parametrize("held_as", FORMATS)
@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), lane=st.sampled_from(["a8w8", "a16w8"]))
def test_kernel_equals_the_evaluator(name: str, held_as: str, seed: int, lane: str) -> None:
    case, feeds = formatted(name, held_as, lane, np.random.default_rng(seed))
    dtypes = {entry.dtype for entry in case.parameters.weights.values()}
    assert dtypes == {f"int{FORMATS[held_as]['bits']}"}
    lowered = case.lower()
    assert not lowered.float_nodes
    stored = {tensor.data_type for tensor in lowered.model.graph.initializer}
    assert (onnx.TensorProto.INT4 in stored) is (dtypes == {"int4"})
    for feed in feeds:
        expected = case.expected(feed)
        for found in all_runs(lowered.model, feed):
            for output in expected:
                np.testing.assert_array_equal(found[output], expected[output])
