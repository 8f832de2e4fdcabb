"""Random models over all supported operators: every stage holds its contract, or refuses with a named reason."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npubake.graph.group_kinds import UNARY_TABLES
from tests.fuzz import operators
from tests.fuzz.contracts import LANES, hold
from tests.fuzz.models import from_seed, models


@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(model=models(), lane=st.sampled_from(LANES))
def test_every_stage_holds_its_contract(model: onnx.ModelProto, lane: str) -> None:
    hold(model, lane)


def test_the_graphs_reach_every_function_and_most_operators() -> None:
    """What is never grown is never tested."""
    grown = {node.op_type for seed in range(150) for node in from_seed(seed).graph.node}
    assert len(grown) > 60
    assert {"Conv", "ConvTranspose", "Gemm", "MatMul", "Softmax", "LayerNormalization", "Resize"} <= grown
    assert {*operators.PLAIN, *operators.CLIPPED, "Gelu"} == UNARY_TABLES


@pytest.mark.parametrize("seed", range(4))
def test_a_model_of_a_long_run_holds(seed: int) -> None:
    hold(from_seed(seed), LANES[seed % len(LANES)])
