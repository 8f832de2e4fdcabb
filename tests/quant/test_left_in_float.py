"""What is said of layers that stay in float against the lane: once, with names, a reason and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npubake.graph.summary import FusionGroup, GraphSummary, NodeFact, TensorFact
from npubake.quant.lanes import parse_lane
from npubake.quant.left_in_float import left_in_float
from npubake.quant.precisions import decide_precisions


def _summary(op_type: str, count: int = 1, source: str = "float32", **more: object) -> GraphSummary:
    """Nodes of one type in a row, none of which has a kernel."""
    names = [f"n{index}" for index in range(count)]
    tensors = {f"t{index}": TensorFact(shape=(2,), dtype="float32") for index in range(count + 1)}
    tensors["t0"] = TensorFact(shape=(2,), dtype=source)
    nodes = tuple(
        NodeFact(name=name, op_type=op_type, inputs=(f"t{index}",), outputs=(f"t{index + 1}",))
        for index, name in enumerate(names)
    )
    groups = tuple(
        FusionGroup(name=node.name, kind="float", nodes=(node.name,), inputs=node.inputs, outputs=node.outputs)
        for node in nodes
    )
    whole = GraphSummary(
        inputs=("t0",), outputs=(f"t{count}",), tensors=tensors, nodes=nodes, groups=groups, provenance=()
    )
    return replace(whole, **more)  # type: ignore[arg-type]


def _said(summary: GraphSummary, lane: str) -> list[str]:
    return list(left_in_float(summary, decide_precisions(summary, parse_lane(lane), [], frozenset()).groups))


def test_one_sentence_a_type_names_the_first_and_counts_the_rest() -> None:
    (sentence,) = _said(_summary("Conv", 7), "a8w8")
    assert sentence.startswith("Conv 'n0', 'n1', 'n2', 'n3', 'n4' and 2 more stay in float32: ")
    assert "computed" in sentence
    assert "constant weights" in sentence


@pytest.mark.parametrize("op_type", ["LSTM", "Max", "Einsum", "SomethingNew"])
def test_every_operator_has_a_reason_and_a_way_out(op_type: str) -> None:
    (sentence,) = _said(_summary(op_type), "a16w8")
    subject, reason = sentence.split(": ")
    assert subject == f"{op_type} 'n0' stays in float32"
    why, what = reason.split("; ")
    assert why
    assert what


def test_a_lane_that_does_not_ask_integers_is_followed_in_silence() -> None:
    assert _said(_summary("Max"), "fp16") == []
    assert _said(_summary("Max"), "fp16_a8w8") == []
    (sentence,) = _said(_summary("Conv"), "fp16_a8w8")
    assert "stays in float16" in sentence


def test_what_only_turns_bytes_into_numbers_loses_nothing() -> None:
    assert _said(_summary("Cast", source="uint8"), "a8w8") == []
    assert len(_said(_summary("Cast"), "a8w8")) == 1


@pytest.mark.parametrize(
    "note",
    [
        "SomethingNew 'n0': 3 nodes in sub-graphs left float: a, b, c",
        "operators outside the ONNX standard stay in float: com.other.Thing, com.microsoft.SomethingNew",
    ],
)
def test_what_the_import_has_said_is_not_said_again(note: str) -> None:
    assert _said(_summary("SomethingNew", notes=(note,)), "a8w8") == []
