"""quant: spellings of lanes, and what each gives to each kind of group."""

from __future__ import annotations

import pytest

from npubake.errors import RecipeError
from npubake.graph.summary import GraphSummary, TensorFact
from npubake.quant.lanes import LANES, Decision, lane_decision, parse_lane
from npubake.quant.parameters import Precision
from tests.quant.graphs import chain

SPELLINGS = {
    "a8w8": ["a8w8", "w8a8", "A8W8", " w8a8 "],
    "a16w8": ["a16w8", "w8a16", "W8A16"],
    "a16w16": ["a16w16", "w16a16"],
    "w4a16": ["w4a16", "a16w4", "W4A16"],
    "fp16": ["fp16", "FP16"],
    "fp16_a8w8": ["fp16_a8w8", "a8w8_fp16", "fp16_w8a8", "w8a8_fp16"],
}


def decided(kind: str, op_type: str, lane: str) -> Decision:
    summary = chain(("g", kind, ["x"], ["y"], op_type), outputs=["y"])
    return lane_decision(summary, summary.groups[0], frozenset([op_type]), LANES[lane])


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in SPELLINGS.items() for text in texts])
def test_letters_and_parts_stand_in_either_order(name: str, text: str) -> None:
    assert parse_lane(text).name == name


@pytest.mark.parametrize("text", ["", "a8", "w4a8", "a8w16", "int8", "fp16_a8w8_a8w8_x", "platform", "a8w8_a16w8"])
def test_another_lane_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_lane(text)
    (fault,) = caught.value.faults
    assert fault.path == "$.lane"
    assert all(name in fault.hint for name in LANES)


@pytest.mark.parametrize(
    ("lane", "precision"),
    [("a8w8", "int8"), ("a16w8", "int16"), ("a16w16", "int16"), ("w4a16", "int16"), ("fp16", "float16")],
)
def test_plain_lanes_treat_every_kernel_alike(lane: str, precision: Precision) -> None:
    for kind, op_type in [("conv", "Conv"), ("table", "Sigmoid"), ("movement", "Reshape"), ("softmax", "Softmax")]:
        assert decided(kind, op_type, lane) == Decision(precision=precision, why=f"lane {lane}")


@pytest.mark.parametrize(
    ("kind", "op_type", "precision"),
    [
        ("conv", "Conv", "int8"),
        ("conv_transpose", "ConvTranspose", "int8"),
        ("linear", "Gemm", "int8"),
        ("linear", "MatMul", "int8"),
        ("matmul", "MatMul", "int8"),
        ("resize", "Resize", "int8"),
        ("movement", "Resize", "int8"),
        ("movement", "Reshape", "float16"),
        ("movement", "MaxPool", "float16"),
        ("concat", "Concat", "float16"),
        ("add", "Add", "float16"),
        ("multiply", "Mul", "float16"),
        ("table", "Sigmoid", "float16"),
        ("layer_norm", "LayerNormalization", "float16"),
        ("softmax", "Softmax", "float16"),
    ],
)
def test_the_mixed_lane_is_the_table_of_the_vendor(kind: str, op_type: str, precision: Precision) -> None:
    assert decided(kind, op_type, "fp16_a8w8").precision == precision


def test_what_has_no_integer_kernel_says_so() -> None:
    assert decided("float", "NonMaxSuppression", "a8w8").precision == "float32"
    assert decided("float", "GridSample", "fp16_a8w8").precision == "float16"
    assert "no integer kernel" in decided("float", "GridSample", "fp16_a8w8").why
    assert decided("float", "Foo", "fp16_a8w8") == Decision(precision="float16", why="lane fp16_a8w8")


def test_groups_that_make_no_float_stay_as_they_are() -> None:
    summary = chain(("g", "movement", ["x"], ["y"], "Reshape"), outputs=["y"])
    indices = GraphSummary(
        inputs=summary.inputs,
        outputs=summary.outputs,
        tensors={name: TensorFact(shape=(1,), dtype="int64") for name in summary.tensors},
        nodes=summary.nodes,
        groups=summary.groups,
        provenance=(),
    )
    for lane in LANES.values():
        decision = lane_decision(indices, indices.groups[0], frozenset(["Reshape"]), lane)
        assert decision == Decision(precision="float32", why="no float32 tensor to quantise")


def test_a_lane_says_the_type_of_weights() -> None:
    assert {name: lane.weights for name, lane in LANES.items()} == {
        "a8w8": "int8", "a16w8": "int8", "a16w16": "int16", "w4a16": "int4", "fp16": "int8", "fp16_a8w8": "int8",
    }  # fmt: skip
