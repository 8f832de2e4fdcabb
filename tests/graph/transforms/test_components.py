"""graph.transforms.components against networkx."""

from __future__ import annotations

import networkx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npubake.graph.transforms.components import components


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_components_are_those_of_networkx(pairs: list[tuple[int, int]]) -> None:
    graph = networkx.Graph(pairs)
    graph.add_nodes_from(range(31))
    expected = {node: min(part) for part in networkx.connected_components(graph) for node in part}
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    assert components(31, ends[:, 0], ends[:, 1]).tolist() == [expected[node] for node in range(31)]


def test_a_long_chain_in_any_order_is_one_component() -> None:
    order = np.random.default_rng(0).permutation(5000)
    assert not components(5000, order[:-1], order[1:]).any()
