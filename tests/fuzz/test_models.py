"""Random models over all supported operators: every stage holds its contract, or refuses with a named reason."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npubake.graph.group_kinds import UNARY_TABLES
from tests.fuzz import operators
from tests.fuzz.contracts import LANES, hold
from tests.fuzz.models import from_seed, models, with_products


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


@pytest.mark.parametrize("seed", range(8))
def test_products_in_every_spelling_hold(seed: int) -> None:
    hold(with_products(seed), LANES[seed % len(LANES)])


def test_the_graphs_reach_every_spelling() -> None:
    graphs = [with_products(seed).graph for seed in range(100)]
    assert sum(node.op_type == "Einsum" for graph in graphs for node in graph.node) > 20
    made = [{name for node in graph.node for name in node.output} for graph in graphs]
    computed = [
        node for graph, names in zip(graphs, made, strict=True) for node in graph.node if {*node.input[1:]} & names
    ]
    assert sum(node.op_type == "Conv" for node in computed) > 5
