"""Contracts of ``lower_model``: names, faults, provenance by value, float groups, bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.errors import StageError
from npubake.graph.model_file import serialise
from tests.fixedpoint.builds import Case, all_runs, by_hand, calibrated, exposing, float_model, held, node, session
from tests.fixedpoint.operators import normal
from tests.fixedpoint.test_models import classifier, images

Array = NDArray[Any]


def small(lane: str = "a8w8", int16: tuple[str, ...] = ()) -> tuple[Case, dict[str, Array]]:
    """conv, silu, conv + relu, pool, concat, conv, sigmoid: one of most forms."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 4),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "b"),
        node("Conv", "b v", "c"),
        node("Relu", "c", "d"),
        node("MaxPool", "d", "p", kernel_shape=[3, 3], pads=[1] * 4),
        node("Concat", "d p", "e", axis=1),
        node("Conv", "e u", "f"),
        node("Sigmoid", "f", "y"),
        node("Conv", "e u", "z"),
    ]
    constants = {"w": normal(rng, 6, 3, 3, 3), "v": normal(rng, 4, 6, 1, 1), "u": normal(rng, 5, 8, 1, 1)}
    model = float_model(nodes, {"x": [1, 3, 8, 8]}, constants, ["y", "z"])
    feeds = {"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    return calibrated(model, [feeds], lane, int16), feeds


def test_edges_have_the_documented_names() -> None:
    case, _ = small()
    lowered = case.lower()
    makers = {output: entry for entry in lowered.model.graph.node for output in entry.output}
    first = makers["x/quantized"]
    assert (first.name, first.op_type, first.input[0]) == ("x/QuantizeLinear", "QuantizeLinear", "x")
    assert [entry.name for entry in lowered.model.graph.node if "x" in entry.input] == ["x/QuantizeLinear"]
    assert (makers["y"].name, makers["y"].input[0]) == ("y/DequantizeLinear", "y/quantized")
    assert (makers["z"].name, makers["z"].input[0]) == ("z/DequantizeLinear", "z/accumulator")
    assert lowered.outputs["y"].dtype == "uint8"
    assert lowered.outputs["z"].dtype == "int32"
    assert len(lowered.outputs["z"].scale) == 5
    assert [value.name for value in lowered.model.graph.input] == ["x"]
    assert [value.name for value in lowered.model.graph.output] == ["y", "z"]


@pytest.mark.parametrize(("lane", "int16"), [("a8w8", ()), ("a16w8", ()), ("a8w8", ("c/Conv", "y/Sigmoid"))])
def test_provenance_holds_by_value(lane: str, int16: tuple[str, ...]) -> None:
    """old = factor * (new - zero_point) for every tensor, with ``old`` by the evaluator."""
    case, feeds = small(lane, int16)
    lowered = case.lower()
    kept = [entry for entry in lowered.provenance if entry.relation != "gone"]
    names = [entry.new for entry in kept]
    values = session(exposing(lowered.model, names)).run(names, feeds)
    expected = case.evaluate(feeds)
    for entry, value in zip(kept, values, strict=True):
        reference = expected[entry.old]
        if entry.relation == "same":
            assert not reference.integer
            np.testing.assert_array_equal(value, reference.data)
        else:
            if entry.old == "x":
                continue  # the evaluator keeps the input real; its integers are compared through all others
            assert reference.integer
            assert entry.factor == case.parameters.tensors[entry.old].scale
            np.testing.assert_array_equal(value.astype(np.int64) - entry.zero_point, reference.data)
    everything = {*case.summary.inputs, *(name for fact in case.summary.nodes for name in fact.outputs)}
    assert {entry.old for entry in lowered.provenance} == everything
    assert {entry.old for entry in lowered.provenance if entry.relation == "gone"} == {"s", "c"}


@pytest.mark.parametrize("int16", [("a/Conv",), ("s/Sigmoid",), ("c/Conv",), ("e/Concat",), ("f/Conv",)])
def test_mixed_widths_equal_the_evaluator(int16: tuple[str, ...]) -> None:
    case, feeds = small("a8w8", int16)
    assert {entry.dtype for entry in case.parameters.tensors.values()} == {"uint8", "int16"}
    expected = case.expected(feeds)
    for found in all_runs(case.lower().model, feeds):
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)


def test_all_faults_come_at_once() -> None:
    case, _ = small()
    parameters = case.parameters
    tensors = {name: entry for name, entry in parameters.tensors.items() if name not in ("b", "f")}
    tensors["p"] = replace(tensors["p"], scale=tensors["p"].scale * 2)
    weights = {name: entry for name, entry in parameters.weights.items() if name != "z/Conv"}
    groups = {name: entry for name, entry in parameters.groups.items() if name != "e/Concat"}
    broken = replace(parameters, tensors=tensors, weights=weights, groups=groups)
    with pytest.raises(StageError) as caught:
        Case(model=case.model, summary=case.summary, parameters=broken).lower()
    assert {fault.where for fault in caught.value.faults} == {"b", "f", "z/Conv", "e/Concat", "p/MaxPool"}
    assert all(fault.hint for fault in caught.value.faults)


def test_weights_beyond_eight_bits_are_refused() -> None:
    case, _ = small()
    entry = case.parameters.weights["c/Conv"]
    finer = replace(entry, scales=tuple(scale / 3 for scale in entry.scales))
    broken = replace(case.parameters, weights={**case.parameters.weights, "c/Conv": finer})
    with pytest.raises(StageError) as caught:
        Case(model=case.model, summary=case.summary, parameters=broken).lower()
    assert [fault.where for fault in caught.value.faults] == ["c/Conv"]


def test_group_without_a_kernel_is_listed_and_close() -> None:
    """Linear Resize by 1.5 has no kernel along the channels: it stays in float, between integers."""
    rng = np.random.default_rng(1)
    nodes = [node("Conv", "x w", "a"), node("Resize", "a - s", "b", mode="linear"), node("Conv", "b v", "y")]
    constants = {
        "w": normal(rng, 4, 3, 1, 1),
        "s": np.array([1, 1.5, 1, 1], np.float32),
        "v": normal(rng, 2, 6, 1, 1),
    }
    model = float_model(nodes, {"x": [1, 3, 4, 4]}, constants, ["y"])
    feeds = {"x": rng.normal(0, 1, (1, 3, 4, 4)).astype(np.float32)}
    lowered = calibrated(model, [feeds]).lower()
    (listed,) = lowered.float_nodes
    assert (listed.group, listed.precision, listed.nodes) == ("b/Resize", "float32", ("b/Resize",))
    assert "power of two" in listed.why
    exact = session(model).run(None, feeds)[0]
    for found in all_runs(lowered.model, feeds):
        assert np.abs(found["y"] - exact).max() < 0.05 * np.abs(exact).max()


def test_float16_groups_are_rounded_at_every_optimisation_level() -> None:
    """The Cast pair stays: each value is a float16 number, and what float32 would give is another one."""
    model = float_model(
        [node("Sigmoid", "x", "a"), node("Add", "a c", "y")],
        {"x": [1, 1000]},
        {"c": np.array(1, np.float32)},
        ["a", "y"],
    )
    feeds = {"x": np.linspace(-4, 4, 1000, dtype=np.float32)[None]}
    lowered = calibrated(model, [feeds], "fp16").lower()
    assert [entry.precision for entry in lowered.float_nodes] == ["float16", "float16"]
    exact = 1 / (1 + np.exp(-feeds["x"].astype(np.float64)))
    for found in all_runs(lowered.model, feeds):
        for name, value in (("a", exact), ("y", found["a"].astype(np.float64) + 1)):
            np.testing.assert_array_equal(found[name], found[name].astype(np.float16).astype(np.float32))
            assert np.abs(found[name] - value).max() <= 2.0**-11 + 1e-6
        assert (found["y"] != (found["a"] + np.float32(1))).any()


def test_movement_of_float16_needs_no_second_rounding() -> None:
    model = float_model([node("Neg", "x", "a"), node("Transpose", "a", "y", perm=[1, 0])], {"x": [3, 4]}, {}, ["y"])
    feeds = {"x": np.random.default_rng(0).normal(0, 1, (3, 4)).astype(np.float32)}
    lowered = calibrated(model, [feeds], "fp16").lower()
    assert [entry.op_type for entry in lowered.model.graph.node] == ["Neg", "Cast", "Cast", "Transpose"]
    assert [entry.group for entry in lowered.float_nodes] == ["a/Neg"]
    np.testing.assert_array_equal(
        session(lowered.model).run(None, feeds)[0], -feeds["x"].astype(np.float16).astype(np.float32).T
    )


@pytest.mark.parametrize("factor", [2.0, 1.5])
def test_integer_resize_between_float16_groups(factor: float) -> None:
    """fp16_a8w8 asks for an 8-bit Resize: exact whether its weights are dyadic or not; close to float."""
    nodes = [node("Sigmoid", "x", "a"), node("Resize", "a - s", "b", mode="linear"), node("Tanh", "b", "y")]
    sizes = np.array([1, 1, factor, factor], np.float32)
    model = float_model(nodes, {"x": [1, 3, 8, 8]}, {"s": sizes}, ["y"])
    feeds = {"x": np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    case = calibrated(model, [feeds], "fp16_a8w8")
    assert case.parameters.groups["b/Resize"].precision == "int8"
    lowered = case.lower()
    assert "b/Resize" in {entry.group for entry in lowered.certificates}
    assert "b/Resize" not in {entry.group for entry in lowered.float_nodes}
    for found in all_runs(lowered.model, feeds):
        assert np.abs(found["y"] - session(model).run(None, feeds)[0]).max() < 0.01


@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
@pytest.mark.parametrize("after", ["Relu", "Clip"])
def test_clamped_tail(after: str, lane: str) -> None:
    """Relu is taken of the accumulator; the limits of a Clip are real, so that no integer stands at that output."""
    rng = np.random.default_rng(2)
    constants = {"w": normal(rng, 4, 3, 1, 1), "low": np.float32(-0.5), "high": np.float32(0.25)}
    clamp = node("Relu", "a", "y") if after == "Relu" else node("Clip", "a low high", "y")
    used = {name: np.asarray(value) for name, value in constants.items() if name == "w" or after == "Clip"}
    model = float_model([node("Conv", "x w", "a"), clamp], {"x": [1, 3, 6, 6]}, used, ["y"])
    feeds = {"x": rng.normal(0, 2, (1, 3, 6, 6)).astype(np.float32)}
    case = calibrated(model, [feeds], lane)
    for tail in ("int32", "float32"):
        lowered = case.lower("int32" if tail == "int32" else "float32")
        assert lowered.outputs["y"].integer == ("y/accumulator" if (after, tail) == ("Relu", "int32") else "")
        for found in all_runs(lowered.model, feeds):
            np.testing.assert_array_equal(found["y"], case.expected(feeds)["y"])


def test_constant_part_of_a_float16_concat_is_rounded() -> None:
    constant = np.array([[1.0001, 2.0001]], np.float32)
    model = float_model(
        [node("Neg", "x", "a"), node("Concat", "a c", "y", axis=1)], {"x": [1, 3]}, {"c": constant}, ["y"]
    )
    feeds = {"x": np.array([[0.1, 0.2, 0.3]], np.float32)}
    for found in all_runs(calibrated(model, [feeds], "fp16").lower().model, feeds):
        exact = np.concatenate([-feeds["x"], constant], axis=1).astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(found["y"], exact)


def test_an_output_may_be_an_input_of_others() -> None:
    """A tensor that leaves the graph and is read on: one integer form, one float output."""
    model = float_model([node("Relu", "x", "a"), node("Neg", "a", "y")], {"x": [2, 5]}, {}, ["a", "y"])
    case = by_hand(model, {"x": held(scale=0.5, zero_point=99), "a": held(scale=0.5), "y": held(zero_point=200)})
    feeds = {"x": np.linspace(-20, 60, 10, dtype=np.float32).reshape(2, 5)}
    for found in all_runs(case.lower().model, feeds):
        for name, value in case.expected(feeds).items():
            np.testing.assert_array_equal(found[name], value)


def test_a_float_output_that_others_read_does_not_leave_rounded() -> None:
    """The runtime moves the QuantizeLinear before the product backwards over both movements."""
    rng = np.random.default_rng(6)
    nodes = [
        node("Relu", "x", "r"),
        node("Slice", "r zero two one", "y"),
        node("Transpose", "y", "t", perm=[1, 0]),
        node("MatMul", "t w", "z"),
    ]
    constants = {"zero": np.array([0]), "two": np.array([2]), "one": np.array([1]), "w": normal(rng, 4, 5)}
    model = float_model(nodes, {"x": [4, 3]}, constants, ["y", "z"])
    feeds = {"x": rng.normal(0, 1, (4, 3)).astype(np.float32)}
    lowered = calibrated(model, [feeds], "fp16_a8w8").lower()
    expected = np.maximum(feeds["x"], 0).astype(np.float16).astype(np.float32)[:, :2]
    for found in all_runs(lowered.model, feeds):
        assert np.array_equal(found["y"], expected)
    assert lowered.outputs["y"].dtype == "float32"


@pytest.mark.parametrize("after", ["Reshape", "Transpose"])
def test_an_int32_output_that_float_movements_read_runs_at_every_level(after: str) -> None:
    rng = np.random.default_rng(7)
    moved = [node("Reshape", "y shape", "m")] if after == "Reshape" else [node("Transpose", "y", "m", perm=[1, 0])]
    model = float_model(
        [node("MatMul", "a b", "y"), *moved, node("Sin", "m", "z")],
        {"a": [3, 4], "b": [4, 3]},
        {"shape": np.array([9])} if after == "Reshape" else {},
        ["y", "z"],
    )
    feeds = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in (("a", (3, 4)), ("b", (4, 3)))}
    case = calibrated(model, [feeds], "fp16_a8w8")
    runs = all_runs(case.lower().model, feeds)
    assert all(np.array_equal(runs[0][name], run[name]) for run in runs for name in ("y", "z"))
    assert case.lower().outputs["y"].scale == (case.lower().outputs["y"].scale[0],)


def test_nothing_is_touched_and_bytes_repeat() -> None:
    case = classifier("digits_vit", "a8w8")
    before = serialise(case.model)
    first, second = serialise(case.lower().model), serialise(case.lower().model)
    assert first == second
    assert serialise(case.model) == before


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Another process, another hash seed: the same model."""
    script = (
        "import hashlib; from tests.fixedpoint.test_lower import small; from npubake.graph.model_file import serialise;"
        "print(hashlib.sha256(serialise(small('a8w8', ('c/Conv',))[0].lower().model)).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    here = hashlib.sha256(serialise(small("a8w8", ("c/Conv",))[0].lower().model)).hexdigest()
    assert done.stdout.strip() == here


def test_fp16_a8w8_of_a_real_classifier_stays_close() -> None:
    case = classifier("digits_vit", "fp16_a8w8")
    lowered = case.lower("float32")
    feeds = [{case.summary.inputs[0]: images()[i : i + 1]} for i in range(20)]
    exact, found = (
        np.concatenate([runner.run(None, feed)[0] for feed in feeds])
        for runner in (session(case.model), session(lowered.model))
    )
    assert 10 * np.log10(np.square(exact).sum() / np.square(exact - found).sum()) > 25
    assert {entry.precision for entry in lowered.float_nodes} == {"float16"}
