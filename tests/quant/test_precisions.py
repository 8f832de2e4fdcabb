"""quant: precision of groups and types of tensors, decided by hand for small graphs."""

from __future__ import annotations

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
    assert dict(made.dtypes) == dict.fromkeys(["x", "t1", "t2", "t3", "t4"], "uint8")
    assert made.groups["c3"].accumulator_output
    assert not made.groups["c1"].accumulator_output
    assert (made.groups["odd"].precision, made.groups["odd"].accumulator_output) == ("float32", False)


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
