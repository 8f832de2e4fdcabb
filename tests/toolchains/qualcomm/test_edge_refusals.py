"""Edges that a context binary cannot have are refused by name, before any calibration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npubake.graph.summary import GraphSummary, TensorFact
from npubake.toolchains.qualcomm.edge_refusals import edge_faults
from tests.graph.summaries import summary

SCALAR = TensorFact(shape=(), dtype="float32")


def whole() -> GraphSummary:
    return replace(summary(), inputs=("images",))


def refused(graph: GraphSummary, **params: Any) -> list[str]:
    return [fault.where for fault in edge_faults(graph, params)]


def test_edges_that_nodes_read_and_make_are_taken() -> None:
    assert refused(whole()) == []


@pytest.mark.parametrize(
    ("graph", "edge"),
    [
        (summary(), "tokens"),
        (replace(whole(), outputs=("boxes", "images")), "images"),
        (replace(whole(), outputs=("boxes", "w")), "w"),
        (replace(whole(), tensors={**whole().tensors, "images": SCALAR}), "images"),
        (replace(whole(), tensors={**whole().tensors, "boxes": SCALAR}), "boxes"),
    ],
)
def test_each_is_named(graph: GraphSummary, edge: str) -> None:
    if edge == "w":
        graph = replace(graph, tensors={**graph.tensors, "w": TensorFact(shape=(3,), dtype="float32")})
    assert refused(graph) == [edge]
    assert refused(graph, road="sdk") == []


def test_all_come_at_once_and_the_wrapper_holds_what_the_binary_lacks() -> None:
    graph = replace(summary(), outputs=("boxes", "images"))
    assert refused(graph) == ["images", "tokens"]
    assert refused(graph, cpu_nodes=["/head/Slice"]) == []
