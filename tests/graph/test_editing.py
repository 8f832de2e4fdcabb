"""graph.editing, graph.ordering, graph.provenance, graph.execution: the tools that passes and comparisons stand on."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from npubake.errors import RecipeError
from npubake.graph.editing import GraphEditor
from npubake.graph.execution import cosine, random_feeds, run_model
from npubake.graph.ordering import sort_nodes
from npubake.graph.provenance import compose, identity
from npubake.graph.summary import Provenance
from tests.graph.writing import build, floats, normal, operators


def _chain() -> onnx.ModelProto:
    return build("float[3] x => float[3] y", "a = Relu(x) b = Neg(a) y = Add(b, c)", c=normal(3))


def test_fresh_names_hit_no_tensor_node_or_constant() -> None:
    editor = GraphEditor(_chain())
    assert editor.fresh("free") == "free"
    assert [editor.fresh("free"), editor.fresh("a"), editor.fresh("c"), editor.fresh("Relu_a")] == [
        "free_1",
        "a_1",
        "c_1",
        "Relu_a_1",
    ]


def test_unused_nodes_and_constants_are_dropped() -> None:
    model = build("float[3] x => float[3] y", "y = Relu(x) z = Add(x, c)", c=normal(3))
    finished = GraphEditor(model).finish()
    assert operators(finished) == ["Relu"]
    assert not finished.graph.initializer


def test_a_bypassed_output_keeps_its_name() -> None:
    model = build("float[3] x => float[3] y", "a = Relu(x) y = Identity(a)")
    editor = GraphEditor(model)
    record = editor.bypass(editor.nodes[1], "a")
    assert record == Provenance(old="a", new="y", relation="same")
    assert [tuple(node.output) for node in editor.finish().graph.node] == [("y",)]


@given(st.integers(0, 10_000))
def test_any_order_is_sorted_and_a_sorted_one_is_kept(seed: int) -> None:
    generator = random.Random(seed)
    nodes = [
        helper.make_node("Add", [f"t{generator.randrange(index)}" if index else "x", "x"], [f"t{index}"])
        for index in range(20)
    ]
    assert sort_nodes(nodes) == nodes
    shuffled = generator.sample(nodes, len(nodes))
    place = {node.output[0]: index for index, node in enumerate(sort_nodes(shuffled))}
    assert all(place.get(node.input[0], -1) < place[node.output[0]] for node in nodes)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(RecipeError):
        sort_nodes([helper.make_node("Relu", ["a"], ["b"], name="one"), helper.make_node("Relu", ["b"], ["a"])])


def test_records_compose_over_steps() -> None:
    model = _chain()
    step = (
        Provenance(old="a", new="b", relation="scaled", factor=0.5),
        Provenance(old="x", new="x", relation="same"),
    )
    middle = compose(identity(model), step, model)
    last = compose(middle, (Provenance(old="b", new="y", relation="scaled", factor=-4.0),), model)
    found = {record.old: record for record in last}
    assert found["a"] == Provenance(old="a", new="y", relation="scaled", factor=-2.0)
    assert found["b"] == Provenance(old="b", new="y", relation="scaled", factor=-4.0)
    assert found["x"].relation == "same"


def test_what_vanishes_without_a_record_is_gone() -> None:
    after = build("float[3] x => float[3] y", "y = Relu(x)")
    assert [record.old for record in compose(identity(_chain()), (), after) if record.relation == "gone"] == ["a", "b"]


def test_a_split_tensor_continues_as_each_part() -> None:
    parts = tuple(Provenance(old="a", new=name, relation="split") for name in ("b", "y"))
    records = compose(identity(_chain()), parts, _chain())
    assert [(record.new, record.relation) for record in records if record.old == "a"] == [
        ("b", "split"),
        ("y", "split"),
    ]


def test_cosine_by_hand() -> None:
    assert cosine(floats(3, 4), floats(4, 3)) == pytest.approx(24 / 25)
    assert cosine(floats(0, 0), floats(0, 0)) == 1.0
    assert cosine(floats(0, 0), floats(1, 0)) == 0.0
    assert cosine(floats(1, math.nan), floats(1, 1)) == 0.0
    assert cosine(floats(1e30, 0), floats(2e30, 0)) == pytest.approx(1.0)


def test_intermediate_tensors_can_be_read() -> None:
    model = _chain()
    before = model.SerializeToString()
    feeds = random_feeds(model, seed=0)
    np.testing.assert_array_equal(run_model(model, feeds, ["b"])["b"], -np.maximum(feeds["x"], 0))
    assert model.SerializeToString() == before
