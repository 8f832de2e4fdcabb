"""What the compiler's trace and log say of each operator, from recorded ones."""

from __future__ import annotations

import json

import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.htp.operators import Operators
from npubake.toolchains.qualcomm.htp.trace import Trace, read_trace
from tests.toolchains.qualcomm import compiler_words as words

NOTHING = Operators.of(words.small_model())


def refused(trace: Trace) -> list[tuple[str, str]]:
    return [(one.node, one.op_type) for one in trace.unsupported]


def test_a_trace_with_an_operator_that_is_not_supported() -> None:
    trace = read_trace(words.TRACE_SINH, (), Operators.of(words.small_model("Sinh")))
    assert (trace.onnx_nodes, trace.graphs) == (15, 2)
    assert trace.qnn_operators == {"Conv2d": 1, "Transpose": 1}
    assert [one["nodes"] for one in trace.mappings] == [["stem"], []]
    assert refused(trace) == [("curve", "Sinh")]
    assert trace.unsupported[0].reasons[0].startswith("Operators of type `Sinh`")
    assert json.loads(json.dumps(trace.to_json()))["unsupported"][0]["node"] == "curve"


def test_that_the_log_speaks_where_no_trace_was_written() -> None:
    trace = read_trace("", words.LOG_FLOAT_ON_V68, NOTHING)
    assert refused(trace) == [("stem", "Conv"), ("curve", "Sigmoid")]
    assert trace.unsupported[0].reasons == ("The SocModel doesn't support FP16", "Failed to add node.")
    assert trace.unsupported[1].reasons == ()


def test_that_pieces_of_the_provider_are_no_nodes() -> None:
    trace = read_trace("", words.LOG_MISH, Operators.of(words.small_model("Mish")))
    assert refused(trace) == [("curve", "Mish")]
    assert "`Mish`" in trace.unsupported[0].reasons[0]


def test_that_the_inserted_node_of_the_error_is_found() -> None:
    assert refused(read_trace("", (words.ERROR_NHWC,), NOTHING)) == [("stem", "Conv")]


def test_that_nodes_for_the_cpu_are_not_what_failed() -> None:
    trace = read_trace("", words.LOG_FLOAT_ON_V68, NOTHING)
    assert refused(trace.without(("stem", "other"))) == [("curve", "Sigmoid")]


def test_that_another_schema_is_refused() -> None:
    with pytest.raises(StageError, match="schema 3"):
        read_trace(json.dumps({"schema_version": 3}), (), NOTHING)
