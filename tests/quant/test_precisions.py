"""quant: precision of groups and types of tensors, decided by hand for small graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npubake.graph.summary import GraphSummary
from npubake.quant.lanes import LANES
from npubake.quant.parameters import Precision
from npubake.quant.precisions import Asked, Precisions, decide_precisions
from tests.quant.graphs import chain


def network() -> GraphSummary:
    return chain(
        ("c1", "conv", ["x"], ["t1"], "Conv"),
        ("pool", "movement", ["t1"], ["t2"], "MaxPool"),
        ("c2", "conv", ["t2"], ["t3"], "Conv"),
        ("act", "table", ["t3"], ["t4"], "Sigmoid"),
        ("c3", "conv", ["t4"], ["t5"], "Conv"),
        ("odd", "float", ["t4"], ["t6"], "CumSum"),
        outputs=["t5", "t6"],
    )


def decide(lane: str, *asked: tuple[list[str], Precision], beyond: frozenset[str] = frozenset()) -> Precisions:
    entries = [
        Asked(path=f"layer_overrides[{index}]", groups=tuple(groups), precision=precision)
        for index, (groups, precision) in enumerate(asked)
    ]
    return decide_precisions(network(), LANES[lane], entries, beyond)


def test_a8w8_holds_all_but_the_tail_and_the_float_group() -> None:
    made = decide("a8w8")
    assert dict(made.dtypes) == {**dict.fromkeys(["x", "t1", "t2", "t4"], "uint8"), "t3": "int16"}
    assert made.inner == {"t3"}
    assert made.groups["c3"].accumulator_output
    assert not made.groups["c1"].accumulator_output
    assert (made.groups["odd"].precision, made.groups["odd"].accumulator_output) == ("float32", False)


def test_quantisers_everywhere_leave_nothing_inside_a_kernel_and_nothing_unrounded() -> None:
    made = decide_precisions(network(), replace(LANES["a8w8"], everywhere=True), [], frozenset())
    assert dict(made.dtypes) == dict.fromkeys(["x", "t1", "t2", "t3", "t4", "t5"], "uint8")
    assert made.inner == frozenset()
    assert not any(entry.accumulator_output for entry in made.groups.values())


def test_an_int16_override_lifts_inputs_outputs_and_all_that_share() -> None:
    made = decide("a8w8", (["c2"], "int16"))
    assert {name for name, dtype in made.dtypes.items() if dtype == "int16"} == {"t1", "t2", "t3"}
    assert made.groups["pool"].precision == "int16"
    assert made.groups["c2"].why == "layer_overrides[0]"
    assert made.groups["c1"].precision == "int8"


def test_the_later_override_wins() -> None:
    made = decide("a8w8", (["c1", "c2"], "int16"), (["c2"], "float16"))
    assert made.groups["c1"].precision == "int16"
    assert made.groups["c2"].precision == "float16"
    assert made.groups["c2"].why == "layer_overrides[1]"
    assert made.dtypes["t3"] == "uint8"  # act reads it in integers, whoever makes it


def test_an_override_without_kernel_is_declined_by_name() -> None:
    made = decide("a8w8", (["odd", "c1"], "int16"))
    assert made.declined == {"layer_overrides[0]": ("odd",)}
    assert made.groups["odd"].precision == "float32"
    assert made.groups["c1"].precision == "int16"


def test_the_mixed_lane_leaves_accumulators_to_float_readers() -> None:
    made = decide("fp16_a8w8")
    assert {name: entry.precision for name, entry in made.groups.items()} == {
        "c1": "int8", "pool": "float16", "c2": "int8", "act": "float16", "c3": "int8", "odd": "float16",
    }  # fmt: skip
    assert {name for name, entry in made.groups.items() if entry.accumulator_output} == {"c1", "c2", "c3"}
    assert dict(made.dtypes) == {"x": "uint8", "t2": "uint8", "t4": "uint8"}


def test_a_tensor_with_one_integer_reader_is_no_accumulator() -> None:
    made = decide("a8w8", (["act"], "float16"))
    assert made.groups["c2"].accumulator_output
    assert "t3" not in made.dtypes
    assert not decide("a8w8").groups["c2"].accumulator_output


@pytest.mark.parametrize("operands", [["x", "k"], ["x", "x"]])
def test_a_product_of_two_tensors_leaves_unrounded_only_where_int32_holds_it(operands: list[str]) -> None:
    summary = chain(("m", "matmul", operands, ["y"], "MatMul"), outputs=["y"])
    eight = decide_precisions(summary, LANES["a8w8"], [], frozenset())
    assert eight.groups["m"].accumulator_output
    assert "y" not in eight.dtypes
    sixteen = decide_precisions(summary, LANES["a16w8"], [], frozenset())
    assert not sixteen.groups["m"].accumulator_output
    assert sixteen.dtypes["y"] == "int16"


def test_float16_gives_way_beyond_its_range() -> None:
    made = decide("fp16", beyond=frozenset(["t4"]))
    assert {name: entry.precision for name, entry in made.groups.items()} == {
        "c1": "float16", "pool": "float16", "c2": "float16", "act": "int16", "c3": "int16", "odd": "float32",
    }  # fmt: skip
    assert made.overflow == {"t4": ("act", "c3", "odd")}
    assert dict(made.dtypes) == {"t3": "int16", "t4": "int16"}
    assert "beyond float16: t4" in made.groups["act"].why


def test_fp16_quantises_nothing() -> None:
    made = decide("fp16")
    assert not made.dtypes
    assert {entry.precision for entry in made.groups.values()} == {"float16"}


def test_a_function_behind_a_convolution_shares_its_kernel() -> None:
    made = decide_precisions(fused(), LANES["a8w8"], [], frozenset())
    assert made.inner == {"t1"}  # t3 has two readers, t5 leaves the graph, t6 is read by a pooling
    assert {name for name, dtype in made.dtypes.items() if dtype == "int16"} == {"t1"}
    assert made.groups["c1"].precision == "int8"


@pytest.mark.parametrize(
    "asked",
    [
        Asked(path="layer_overrides[0]", groups=("c1",), fuse=False),
        Asked(path="layer_overrides[0]", groups=("act1",), precision="float32"),
        Asked(path="layer_overrides[0]", groups=("c1",), precision="float16"),
    ],
)
def test_what_is_kept_apart_is_rounded_like_any_other(asked: Asked) -> None:
    made = decide_precisions(fused(), LANES["a8w8"], [asked], frozenset())
    assert made.inner == frozenset()
    assert "int16" not in made.dtypes.values()


def test_movements_between_a_convolution_and_its_function_are_inner_too() -> None:
    summary = chain(
        ("c1", "linear", ["x"], ["t1"], "Gemm"),
        ("flat", "movement", ["t1"], ["t2"], "Reshape"),
        ("gelu", "table", ["t2"], ["t3"], "Gelu"),
        ("c2", "linear", ["t3"], ["t4"], "Gemm"),
        ("turn", "movement", ["t4"], ["t5"], "Transpose"),
        ("act", "table", ["t5"], ["t6"], "Gelu"),
        ("join", "concat", ["t5", "t6"], ["t7"], "Concat"),
        outputs=["t7"],
    )
    made = decide_precisions(summary, LANES["a8w8"], [], frozenset())
    assert made.inner == {"t1", "t2"}  # t5 has a second reader
    assert {name for name, dtype in made.dtypes.items() if dtype == "int16"} == {"t1", "t2"}


def test_int16_lanes_have_no_inner_tensors() -> None:
    assert decide_precisions(fused(), LANES["a16w8"], [], frozenset()).inner == frozenset()


def test_a_lifted_output_takes_neither_the_inputs_nor_the_reader_with_it() -> None:
    lift = Asked(path="layer_overrides[0]", groups=("c1",), output="int16")
    made = decide_precisions(network(), LANES["a8w8"], [lift], frozenset())
    lifted = {name for name, dtype in made.dtypes.items() if dtype == "int16"} - made.inner
    assert lifted == {"t1", "t2"}  # the pool shares a scale
    assert (made.groups["c1"].precision, made.groups["c2"].precision) == ("int8", "int8")
    undone = Asked(path="layer_overrides[1]", groups=("c1",), output="int8")
    made = decide_precisions(network(), LANES["a8w8"], [lift, undone], frozenset())
    assert "t1" not in {name for name, dtype in made.dtypes.items() if dtype == "int16"}


def fused() -> GraphSummary:
    return chain(
        ("c1", "conv", ["x"], ["t1"], "Conv"),
        ("act1", "table", ["t1"], ["t2"], "HardSwish"),
        ("c2", "conv", ["t2"], ["t3"], "Conv"),
        ("act2", "table", ["t3"], ["t4"], "Sigmoid"),
        ("gate", "multiply", ["t3", "t4"], ["t5"], "Mul"),
        ("c3", "conv", ["t5"], ["t6"], "Conv"),
        ("pool", "average", ["t6"], ["t7"], "GlobalAveragePool"),
        ("act3", "table", ["t7"], ["t8"], "Sigmoid"),
        ("c4", "conv", ["t8"], ["t9"], "Conv"),
        ("act4", "table", ["t9"], ["t10"], "Sigmoid"),
        outputs=["t5", "t9", "t10"],
    )
