"""The graphs that time is measured on: of each shape as many nodes as asked for, and what optimize is to take away."""

from __future__ import annotations

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from npubake.graph.importing import import_model
from npubake.graph.optimizing import optimize_model

FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ("chain", {"Conv": 20, "Sigmoid": 20, "Add": 20}),
        ("shared", {"Conv": 20, "Sigmoid": 20, "Add": 20}),
        ("wide", {"Conv": 20, "Sigmoid": 20, "Add": 20, "Concat": 1}),
        ("batch_norm", {"Conv": 20, "Relu": 20}),
        ("identity", {"Conv": 20, "Tanh": 20}),
        ("hard_swish", {"Conv": 12, "HardSwish": 12}),
    ],
)
def test_every_shape_gives_optimize_its_work(shape: str, left: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    model = import_module("large_graphs").network(60, shape)
    assert len(model.graph.node) == 61
    made = optimize_model(import_model(model.SerializeToString(), {})).model
    assert Counter(node.op_type for node in made.graph.node) == left
