"""MatMul of two computed tensors: the second operand by the HTP's own rounding to int8, written here in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from npubake.toolchains.qualcomm.adapting.request import Adapted
from tests.fixedpoint.builds import float_model, node
from tests.qualcomm.emulated import adapted, decibels, runs

RANDOM = np.random.default_rng(11)
SHAPES = {"x": [1, 2, 16, 24], "y": [1, 2, 24, 16]}
FEEDS = [{name: RANDOM.uniform(-2, 3, shape).astype(np.float32) for name, shape in SHAPES.items()} for _ in range(2)]
SEEN = max(float(np.abs(feed["y"]).max()) for feed in FEEDS)


def product(*behind: onnx.NodeProto, result: str = "out") -> onnx.ModelProto:
    return float_model([node("MatMul", "x y", result), *behind], SHAPES, {}, ["out"])


def second_grids(made: Adapted) -> list[tuple[float, int, int]]:
    """Scale, zero point and type of what each MatMul reads second."""
    stored = {each.name: each for each in made.model.graph.initializer}
    makers = {each.output[0]: each for each in made.model.graph.node}
    read = [makers[each.input[1]] for each in made.model.graph.node if each.op_type == "MatMul"]
    steps = [(stored[each.input[1]], stored[each.input[2]]) for each in read]
    return [
        (float(numpy_helper.to_array(scale)), int(numpy_helper.to_array(zero)), zero.data_type) for scale, zero in steps
    ]


class MatMul(OpRun):
    """With the second operand in int8 steps over the range of its grid, +-32768 steps of 16 bits, as the emulator was
    seen to take it. steps: those of 16 bits, of each product in turn.
    """

    steps: list[float]

    def _run(self, first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[Any]]:
        step = 32768 * self.steps.pop(0) / 127.5
        return (first @ (np.rint(second / step) * step).astype(np.float32),)


def as_the_htp(made: Adapted) -> NDArray[Any]:
    found = []
    for feed in FEEDS:
        MatMul.steps = [scale for scale, _, _ in second_grids(made)]
        results: list[Any] = list(ReferenceEvaluator(made.model, new_ops=[MatMul]).run(None, feed))
        found.append(np.asarray(results[0]))
    return np.stack(found)


@pytest.mark.parametrize("lane", ["a16w8", "w4a16"])
def test_the_second_operand_has_steps_of_what_was_seen(lane: str) -> None:
    ((scale, zero_point, dtype),) = second_grids(adapted(product(), FEEDS, lane))
    assert (zero_point, dtype) == (0x8000, TensorProto.UINT16)
    assert scale * 0x7F7F == pytest.approx(SEEN, rel=2e-3)  # ranges are snapped outward to 10 bits


@pytest.mark.parametrize(("lane", "least"), [("a16w8", 47.0), ("a16w16", 75.0)])
def test_what_the_htp_computes_is_near_the_float_model(lane: str, least: float) -> None:
    model = product()
    made = adapted(model, FEEDS, lane)
    floats = runs(model, FEEDS, "out")
    assert decibels(floats, as_the_htp(made)) > least
    assert decibels(floats, runs(made.model, FEEDS, "out")) > 75


def test_two_products_add_up_under_the_name_of_one() -> None:
    model = product(node("Relu", "p", "out"), result="p")
    made = adapted(model, FEEDS, "a16w16")
    kinds = [each.op_type for each in made.model.graph.node if "Linear" not in each.op_type]
    assert kinds == ["Sub", "MatMul", "MatMul", "Add", "Relu"]
    assert [form["node"] for form in made.record["forms"]] == ["p/MatMul"]
    (added,) = (each for each in made.model.graph.node if each.op_type == "Add")
    assert (added.name, list(added.output)) == ("p/MatMul", ["p"])
    assert made.record["coverage"]["float"] == []


def test_8_bits_and_constants_stay_one_product() -> None:
    assert adapted(product(), FEEDS, "a8w8").record["forms"] == []
    held = {"w": RANDOM.standard_normal((24, 16)).astype(np.float32)}
    model = float_model([node("MatMul", "x w", "out")], {"x": SHAPES["x"]}, held, ["out"])
    feeds = [{"x": feed["x"]} for feed in FEEDS]
    assert all(adapted(model, feeds, lane).record["forms"] == [] for lane in ("a16w8", "a16w16"))


@pytest.mark.parametrize(
    ("nodes", "converted"),
    [
        ([node("Abs", "y", "k"), node("MatMul", "x k", "out")], False),
        ([node("Abs", "y", "a"), node("Transpose", "a", "k", perm=[0, 1, 2, 3]), node("MatMul", "x k", "out")], False),
        ([node("Sigmoid", "y", "k"), node("MatMul", "x k", "out")], True),  # of the HTP's own grid
        ([node("Add", "x y", "a"), node("Relu", "a", "k"), node("MatMul", "x k", "out")], True),  # its grid is the Relu
        ([node("Abs", "y", "k"), node("Neg", "k", "n"), node("MatMul", "n k", "out")], True),  # read twice
    ],
)
def test_an_operand_that_nothing_else_is_bound_to_is_made_on_that_grid(
    nodes: list[onnx.NodeProto], converted: bool
) -> None:
    model = float_model(nodes, {"x": [1, 2, 16, 16], "y": [1, 2, 16, 16]}, {}, ["out"])
    feeds = [{name: feed["x"][..., :16] - shift for name, shift in (("x", 0), ("y", 0.5))} for feed in FEEDS]
    made = adapted(model, feeds, "a16w8")
    ((_, zero_point, _),) = second_grids(made)
    assert zero_point == 0x8000
    assert ("converted" in made.record["forms"][-1]["what"]) == converted
    assert decibels(runs(model, feeds, "out"), runs(made.model, feeds, "out")) > 70


def test_names_that_are_taken_are_left_alone() -> None:
    """A tensor of the model that is called as a new one would be."""
    nodes = [node("Relu", "y", "out/MatMul/second"), node("MatMul", "x out/MatMul/second", "out")]
    model = float_model(nodes, SHAPES, {}, ["out"])
    made = adapted(model, FEEDS, "a16w8")
    assert decibels(runs(model, FEEDS, "out"), runs(made.model, FEEDS, "out")) > 75
