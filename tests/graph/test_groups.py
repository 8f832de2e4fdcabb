"""graph.groups: every node once, in topological order, and the kinds that a quantiser needs."""

from __future__ import annotations

import onnx
import pytest

from npubake.graph.editing import GraphEditor
from npubake.graph.groups import find_groups
from npubake.graph.optimizing import optimize_model
from npubake.graph.summary import FusionGroup
from tests.graph.cases import CASES
from tests.graph.networks import detector
from tests.graph.writing import build, floats, integers, normal, scalar

CONV = "t = Conv<pads=[1,1,1,1]>(x, w, b)"
WEIGHTS = {"w": normal(4, 3, 3, 3), "b": normal(4)}
IMAGE = "float[1,3,8,8] x => float[1,4,8,8] y"


def _kinds(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(group.kind, group.function) for group in find_groups(model)]


def assert_well_formed(model: onnx.ModelProto, groups: tuple[FusionGroup, ...]) -> None:
    """Covers each node once; reads only what earlier groups, inputs and constants hold; makes what others read."""
    assert sorted(name for group in groups for name in group.nodes) == sorted(node.name for node in model.graph.node)
    known = {value.name for value in model.graph.input}
    nodes = {node.name: node for node in model.graph.node}
    constants = {tensor.name for tensor in model.graph.initializer}
    for group in groups:
        assert set(group.inputs) <= known
        inner = {name for member in group.nodes for name in nodes[member].output if name} - set(group.outputs)
        for member in group.nodes:
            assert set(filter(None, nodes[member].input)) <= known | constants | inner
        assert group.name == group.nodes[0]
        known.update(group.outputs)
    assert {value.name for value in model.graph.output} <= known


@pytest.mark.parametrize("case", CASES)
def test_groups_cover_every_node_once_in_order(case: str) -> None:
    model = GraphEditor(CASES[case]()).finish()
    assert_well_formed(model, find_groups(model))
    optimized = optimize_model(model)
    assert_well_formed(optimized.model, optimized.summary.groups)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{CONV} y = Relu(t)", [("conv", "relu")]),
        (f"{CONV} y = Clip(t, zero, six)", [("conv", "clip")]),
        (f"{CONV} y = Clip(t, , six)", [("conv", "clip")]),
        (f"{CONV} k = Relu(six) y = Clip(t, , k)", [("conv", ""), ("float", ""), ("float", "")]),
        (f"{CONV} s = Sigmoid(t) y = Mul(s, t)", [("conv", ""), ("table", "silu")]),
        (f"{CONV} p = Softplus(t) h = Tanh(p) y = Mul(t, h)", [("conv", ""), ("table", "mish")]),
        (f"{CONV} k = Mul(t, c) s = Sigmoid(k) y = Mul(t, s)", [("conv", ""), ("table", "quick_gelu")]),
        (f"{CONV} y = HardSwish(t)", [("conv", ""), ("table", "hard_swish")]),
        (f"{CONV} u = Add(t, t) y = Mul(u, u)", [("conv", ""), ("table", "double"), ("table", "square")]),
        (f"{CONV} a = Relu(t) s = Add(a, t) y = Relu(s)", [("conv", ""), ("table", "relu"), ("add", "relu")]),
        (f"{CONV} y = Softmax<axis=1>(t)", [("conv", ""), ("softmax", "")]),
        (f"{CONV} y = LogSoftmax<axis=1>(t)", [("conv", ""), ("float", "")]),
        (f"{CONV} g = GlobalAveragePool(t) y = Mul(t, g)", [("conv", ""), ("average", ""), ("multiply", "")]),
        (f"{CONV} g = ReduceMax(t, axes) y = Sub(t, g)", [("conv", ""), ("reduce", ""), ("add", "")]),
        (f"{CONV} y = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(t)", [("conv", ""), ("movement", "")]),
    ],
)  # fmt: skip
def test_kinds_and_functions(body: str, expected: list[tuple[str, str]]) -> None:
    model = build(IMAGE, body, **WEIGHTS, zero=scalar(0), six=scalar(6), c=scalar(1.702), axes=integers(2, 3))
    assert _kinds(model) == expected


def test_what_others_read_stays_outside_a_group() -> None:
    model = build("float[1,3,8,8] x => float[1,4,8,8] y, float[1,4,8,8] t", f"{CONV} y = Relu(t)", **WEIGHTS)
    groups = find_groups(model)
    assert [(group.kind, group.outputs) for group in groups] == [("conv", ("t",)), ("table", ("y",))]


def test_a_sigmoid_that_others_read_is_no_silu() -> None:
    model = build(
        "float[1,3,8,8] x => float[1,4,8,8] y, float[1,4,8,8] z",
        f"{CONV} s = Sigmoid(t) y = Mul(s, t) z = Relu(s)", **WEIGHTS,
    )  # fmt: skip
    assert ("table", "silu") not in _kinds(model)


@pytest.mark.parametrize(
    ("signature", "body", "expected"),
    [
        ("float[2,5] x => float[2,7] y", "t = MatMul(x, m) u = Add(t, row) y = Relu(u)", [("linear", "relu")]),
        ("float[2,5] x => float[2,7] y", "t = MatMul(x, m) y = Add(grid, t)", [("linear", ""), ("add", "")]),
        ("float[2,5] x, float[5,7] z => float[2,7] y", "y = MatMul(x, z)", [("matmul", "")]),
        ("float[5,2] x => float[3,2] y", "y = MatMul(left, x)", [("float", "")]),
        ("float[2,5] x, float[2,5] z => float[2,5] y", "y = Div(x, z)", [("divide", "")]),
        ("float[2,5] x => float[2,1] y", "y = Gather<axis=1>(x, index)", [("movement", "")]),
        ("float[2,5] x, int64[1] i => float[2,1] y", "y = Gather<axis=1>(x, i)", [("float", "")]),
        ("int64[2,5] x => int64[5,2] y", "y = Transpose<perm=[1,0]>(x)", [("float", "")]),
    ],
)
def test_matrices_and_indices(signature: str, body: str, expected: list[tuple[str, str]]) -> None:
    model = build(
        signature, body, m=normal(5, 7), row=normal(7), grid=normal(2, 7), left=normal(3, 5), index=integers(0)
    )
    assert _kinds(model) == expected


def test_averages_need_equal_divisors() -> None:
    counted = "y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1],count_include_pad=1>(x)"
    uncounted = "y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)"
    signature = "float[1,3,8,8] x => float[1,3,8,8] y"
    assert _kinds(build(signature, counted)) == [("average", "")]
    assert _kinds(build(signature, uncounted)) == [("float", "")]


def test_resizes() -> None:
    signature = "float[1,3,4,4] x => float[1,3,8,8] y"
    for mode, kind in (("nearest", "movement"), ("linear", "resize"), ("cubic", "float")):
        assert _kinds(build(signature, f'y = Resize<mode="{mode}">(x, , s)', s=floats(1, 1, 2, 2))) == [(kind, "")]


def test_a_detector_has_no_group_without_kernel() -> None:
    optimized = optimize_model(detector())
    assert_well_formed(optimized.model, optimized.summary.groups)
    kinds = [group.kind for group in optimized.summary.groups]
    assert "float" not in kinds
    assert kinds.count("conv") == 6
    assert [group.function for group in optimized.summary.groups].count("silu") == 4
