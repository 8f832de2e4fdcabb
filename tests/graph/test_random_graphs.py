"""The whole of optimise on random graphs: equal outputs, every tensor accounted for by value, stable, well grouped."""

from __future__ import annotations

import random

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from npubake.graph.execution import random_feeds, run_model
from npubake.graph.model_file import serialise
from npubake.graph.optimizing import optimize_model
from tests.graph.test_groups import assert_well_formed
from tests.graph.writing import Array, assert_close, assert_provenance, build, floats, integers, normal, scalar

# Each keeps the shape [1,4,6,6]; {a} and {b} are earlier tensors, {o} the new one, {i} makes constants of its own.
STEPS = (
    "{o} = Relu({a})",
    "{o} = Sigmoid({a})",
    "{o} = Identity({a})",
    "{o} = Clip({a}, zero, six)",
    "{o} = Clip({a}, , six)",
    "{o} = HardSigmoid<alpha=0.16666667>({a})",
    "{o} = Add({a}, {b})",
    "{o} = Mul({a}, {b})",
    "{o} = Sub({a}, {b})",
    "{o} = Sum({a}, {b}, {a})",
    "{o} = Mul({a}, half)",
    "{o} = Add(channels, {a})",
    "{o} = Sub(channels, {a})",
    "{o} = Mul({a}, one)",
    "{o} = Add({a}, zero)",
    "{o} = Div({a}, six)",
    "{o} = Conv<pads=[1,1,1,1]>({a}, w)",
    "{o} = Conv({a}, w1, b)",
    "{o} = BatchNormalization({a}, gamma, b, mean, variance)",
    "{o} = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>({a})",
    "{o} = Reshape({a}, same)",
    "p{o} = Pad({a}, pads) {o} = Conv(p{o}, w, b)",
    "p{o} = Transpose<perm=[0,2,3,1]>({a}) q{o} = MatMul(p{o}, square) {o} = Transpose<perm=[0,3,1,2]>(q{o})",
    "p{o} = Transpose<perm=[0,2,3,1]>({a}) r{o} = Add(p{o}, b) {o} = Transpose<perm=[0,3,1,2]>(r{o})",
    "l{o}, h{o} = Split<axis=1,num_outputs=2>({a}) {o} = Concat<axis=1>(h{o}, l{o})",
    "d{o} = Div({a}, root) e{o} = Erf(d{o}) f{o} = Add(e{o}, one) g{o} = Mul({a}, f{o}) {o} = Mul(g{o}, half)",
    "p{o} = Exp(channels) {o} = Add({a}, p{o})",
    "s{o} = Shape({a}) {o} = Reshape({a}, s{o})",
    "m{o} = GlobalAveragePool({a}) {o} = Mul({a}, m{o})",
    "{o} = Softmax<axis=1>({a})",
)
CONSTANTS: dict[str, Array] = {
    "zero": scalar(0), "one": scalar(1), "six": scalar(6), "half": scalar(0.5), "root": scalar(1.4142135),
    "channels": normal(4, 1, 1), "w": normal(4, 4, 3, 3), "w1": normal(4, 4, 1, 1), "b": normal(4),
    "gamma": floats(1, -2, 0.5, 3), "mean": normal(4, seed=3), "variance": floats(0.5, 2, 1, 9),
    "same": integers(1, 4, 6, 6), "pads": integers(0, 0, 1, 1, 0, 0, 1, 1), "square": normal(4, 4),
}  # fmt: skip


def _random_model(seed: int) -> onnx.ModelProto:
    generator = random.Random(seed)
    names, body = ["x"], []
    for index in range(generator.randint(2, 14)):
        recent = names[-3:] if generator.random() < 0.7 else names
        step = generator.choice(STEPS)
        body.append(step.format(a=generator.choice(recent), b=generator.choice(names), o=f"t{index}"))
        names.append(f"t{index}")
    outputs = {names[-1], *generator.sample(names[1:], generator.randint(0, min(2, len(names) - 1)))}
    declared = ", ".join(f"float[1,4,6,6] {name}" for name in sorted(outputs))
    return build(f"float[1,4,6,6] x => {declared}", " ".join(body), **CONSTANTS)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_optimise_keeps_every_random_graph_equal(seed: int) -> None:
    model = _random_model(seed)
    optimized = optimize_model(model)
    feeds = random_feeds(model, seed=1)
    expected, actual = run_model(model, feeds), run_model(optimized.model, feeds)
    for name, value in expected.items():
        assert np.isfinite(value).all()
        assert_close(actual[name], value, 1e-4, name)
    onnx.checker.check_model(optimized.model, full_check=True)
    assert_provenance(model, optimized.model, optimized.summary.provenance, 1e-3)
    assert_well_formed(optimized.model, optimized.summary.groups)
    assert serialise(optimize_model(optimized.model).model) == serialise(optimized.model)
