"""Nodes that hold graphs, recurrent layers and operators of other domains: they stay in float, by name, and work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from npubake.errors import RecipeError
from npubake.graph.execution import run_model
from npubake.graph.importing import import_model
from npubake.graph.outlining import FLOAT_DOMAIN
from tests.kinds.graphs import around, body, conv, model, node, pictures, value, weights
from tests.kinds.road import assert_faithful, bake, run

SIGNAL = (1, 4, 8, 8)


def _computed_if() -> onnx.ModelProto:
    """The largest value decides between a third Conv and a SiLU; both read t and weights of the main graph."""
    yes = body([conv("t", "p", "v", "c")], [], [value("p", SIGNAL)], "yes")
    no = body([node("Sigmoid", "t", "s"), node("Mul", "s t", "q")], [], [value("q", SIGNAL)], "no")
    chosen = node("If", "flag", "u", "choice", then_branch=yes, else_branch=no)
    return around(
        [node("ReduceMax", "t", "top", keepdims=0), node("Greater", "top k", "flag"), chosen],
        {"k": np.array(1.2, np.float32)},
    )


def _loop(trips: str = "trips", stop: str = "-") -> onnx.ModelProto:
    """u = t halved and increased by t, three times."""
    inside = body(
        [node("Mul", "state half", "h"), node("Add", "h t", "next"), node("Identity", "go", "on")],
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("state", SIGNAL)],
        [value("on", (), TensorProto.BOOL), value("next", SIGNAL)],
    )
    loop = node("Loop", f"{trips} {stop} t", "u", "rounds", body=inside)
    return around([loop], {"half": np.array(0.5, np.float32), "trips": np.array(3)})


def _scan() -> onnx.ModelProto:
    """A running sum over six rows between two products."""
    inside = body(
        [node("Add", "sum row", "next"), node("Relu", "next", "out")],
        [value("sum", (4,)), value("row", (4,))],
        [value("next", (4,)), value("out", (4,))],
    )
    return model(
        [
            node("MatMul", "x w", "t"),
            node("Scan", "zero t", "final rows", "running", body=inside, num_scan_inputs=1),
            node("MatMul", "rows v", "y"),
        ],
        {"w": weights(5, 4), "v": weights(4, 3), "zero": np.zeros(4, np.float32)},
        [value("x", (6, 5))],
        [value("y", (6, 3))],
    )


CASES = {
    "choice": (_computed_if, (1, 3, 8, 8), ["Conv_p", "Sigmoid_s", "Mul_q"]),
    "rounds": (_loop, (1, 3, 8, 8), ["Mul_h", "Add_next", "Identity_on"]),
    "running": (_scan, (6, 5), ["Add_next", "Relu_out"]),
}


@pytest.mark.parametrize("name", CASES)
def test_inner_nodes_stay_in_float_by_name_and_the_rest_is_quantised(name: str, tmp_path: Path) -> None:
    make, shape, inner = CASES[name]
    source, examples = make(), pictures(6, shape)
    baked = bake(source, examples, tmp_path)
    assert_faithful(baked, source, examples, 30)
    assert name in baked.float_nodes
    (warning,) = (text for text in baked.warnings if repr(name) in text)
    assert f"{len(inner)} nodes in sub-graphs left float" in warning
    assert all(each in warning for each in inner)
    weighted = [group.name for group in baked.summary.groups if group.kind in ("conv", "linear")]
    assert len(weighted) == 2
    assert not baked.float_nodes & set(weighted)


def test_both_branches_are_taken_in_the_quantised_model(tmp_path: Path) -> None:
    source = _computed_if()
    examples = [{"x": feeds["x"] * factor} for feeds in pictures(4) for factor in (np.float32(0.1), np.float32(2))]
    source.graph.output.append(value("flag", (), TensorProto.BOOL))
    taken = {bool(run(source.SerializeToString(), feeds)[1]) for feeds in examples}
    assert taken == {True, False}
    del source.graph.output[1]
    assert_faithful(bake(source, examples, tmp_path), source, examples, 25)


def test_a_size_that_depends_on_the_data_is_refused_at_its_node() -> None:
    """The second result stacks one row a round, and the data decide how many rounds."""
    inside = body(
        [node("Identity", "state", "next"), node("Identity", "state", "row"), node("Identity", "go", "on")],
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("state", (4,))],
        [value("on", (), TensorProto.BOOL), value("next", (4,)), value("row", (4,))],
    )
    source = model(
        [
            node("Abs", "x", "a"),
            node("ReduceSum", "a", "total", keepdims=0),
            node("Cast", "total", "trips", to=TensorProto.INT64),
            node("Loop", "trips - x", "final rows", "rounds", body=inside),
            node("Relu", "rows", "y"),
        ],
        {},
        [value("x", (4,))],
        [value("y", ("rows", 4))],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert fault.where == "rounds"
    assert "depends on the data" in fault.what
    assert fault.hint


def test_graphs_inside_graphs_read_from_every_level() -> None:
    innermost = body([node("Mul", "t k", "m")], [], [value("m", None)])
    other = body([node("Neg", "a", "n")], [], [value("n", None)])
    middle = body(
        [node("Add", "t k", "a"), node("If", "flag", "r", "inner", then_branch=innermost, else_branch=other)],
        [],
        [value("r", None)],
    )
    last = body([node("Identity", "t", "s")], [], [value("s", None)])
    source = model(
        [node("Relu", "x", "t"), node("If", "flag", "y", "outer", then_branch=middle, else_branch=last)],
        {"k": np.array(3, np.float32)},
        [value("x", (2, 3)), value("flag", (), TensorProto.BOOL)],
        [value("y", (2, 3))],
    )
    made = import_model(source.SerializeToString(), {})
    (call,) = (each for each in made.graph.node if each.domain == FLOAT_DOMAIN)
    assert sorted(call.input) == ["flag", "t"]
    for flag in (True, False):
        feeds = {"x": weights(2, 3), "flag": np.array(flag)}
        np.testing.assert_array_equal(run_model(made, feeds)["y"], run(source.SerializeToString(), feeds)[0])


def test_half_precision_inside_is_promoted_too() -> None:
    yes = body([node("Mul", "t k", "m")], [], [value("m", (2, 3), TensorProto.FLOAT16)])
    no = body([node("Neg", "t", "n")], [], [value("n", (2, 3), TensorProto.FLOAT16)])
    yes.initializer.append(numpy_helper.from_array(np.array(1.5, np.float16), "k"))
    source = model(
        [node("Relu", "x", "t"), node("If", "flag", "y", then_branch=yes, else_branch=no)],
        {},
        [value("x", (2, 3), TensorProto.FLOAT16), value("flag", (), TensorProto.BOOL)],
        [value("y", (2, 3), TensorProto.FLOAT16)],
    )
    made = import_model(source.SerializeToString(), {})
    answer = run_model(made, {"x": weights(2, 3), "flag": np.array(True)})["y"]
    np.testing.assert_array_equal(answer, np.maximum(weights(2, 3), 0) * np.float32(1.5))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_stay_in_float_between_quantised_ones(kind: str, tmp_path: Path) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    source = model(
        [
            node("MatMul", "x w", "t"),
            node(kind, "t W R B", "Y", "layer", hidden_size=6),
            node("Squeeze", "Y axes", "s"),
            node("MatMul", "s v", "y"),
        ],
        {
            "w": weights(5, 5),
            "W": weights(1, gates * 6, 5),
            "R": weights(1, gates * 6, 6),
            "B": weights(1, gates * 12),
            "axes": np.array([1]),
            "v": weights(6, 4),
        },
        [value("x", (7, 1, 5))],
        [value("y", (7, 1, 4))],
    )
    examples = pictures(6, (7, 1, 5))
    baked = bake(source, examples, tmp_path)
    assert_faithful(baked, source, examples, 30)
    assert baked.float_nodes == {"layer"}


def test_an_operator_of_another_domain_that_the_runtime_has_stays_in_float(tmp_path: Path) -> None:
    """One of them is called like an operator of the standard, and is another function."""
    source = around(
        [
            node("QuickGelu", "t", "q", "quick", domain="com.microsoft", alpha=1.5),
            node("Gelu", "q", "u", "gelu", domain="com.microsoft"),
        ],
        {},
        domains=["com.microsoft"],
    )
    baked = bake(source, pictures(), tmp_path)
    assert_faithful(baked, source, pictures(), 30)
    assert baked.float_nodes == {"quick", "gelu"}
    (warning,) = baked.warnings
    assert "com.microsoft.QuickGelu" in warning
    assert "com.microsoft.Gelu" in warning


def test_no_rewrite_takes_a_foreign_operator_for_its_namesake(tmp_path: Path) -> None:
    """``Trilu`` of com.microsoft is no ``Trilu``, and a ``Pad`` there takes other inputs than the standard's."""
    source = model(
        [node("Relu", "x", "t"), node("Pad", "t pads", "p", "foreign", domain="com.microsoft"), node("Neg", "p", "y")],
        {"pads": np.array([0, 0, 0, 0])},
        [value("x", (2, 3))],
        [value("y", (2, 3))],
        domains=["com.microsoft"],
    )
    baked = bake(source, pictures(3, (2, 3)), tmp_path, until="optimize")
    kinds = {fact.name: fact.op_type for fact in baked.summary.nodes}
    assert kinds["foreign"] == "com.microsoft.Pad"
    for feeds in pictures(3, (2, 3)):
        np.testing.assert_array_equal(baked.run("optimize", feeds)[0], run(source.SerializeToString(), feeds)[0])


def test_an_operator_that_nobody_has_is_refused_with_its_domain() -> None:
    source = around([node("Sharpen", "t", "u", "vendor", domain="com.vendor")], {}, domains=["com.vendor"])
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert fault.where == "vendor"
    assert "'com.vendor'" in fault.what
    assert "Sharpen" in fault.what
    assert fault.hint


def test_an_operator_whose_function_the_model_brings_is_as_good_as_written_out(tmp_path: Path) -> None:
    source = around([node("Twice", "t", "u", "vendor", domain="com.vendor")], {}, domains=["com.vendor"])
    double = onnx.helper.make_function(
        "com.vendor", "Twice", ["a"], ["r"], [node("Add", "a a", "r")], [onnx.helper.make_opsetid("", 17)]
    )
    source.functions.append(double)
    baked = bake(source, pictures(), tmp_path)
    assert_faithful(baked, source, pictures(), 30)
    assert baked.float_nodes == set()


def test_what_stays_in_float_is_noted_in_graph_json(tmp_path: Path) -> None:
    baked = bake(_loop(), pictures(), tmp_path, until="optimize")
    notes = json.loads(baked.files["optimize.graph"].read_text())["notes"]
    assert len(notes) == 1
    assert notes[0].startswith("Loop 'rounds'")
