"""graph.transforming: the steps in order, what keeps layers out of them, and settings that make no sense."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from npubake.errors import RecipeError
from npubake.graph.execution import random_feeds, run_model
from npubake.graph.provenance import computed_tensors, identity
from npubake.graph.summarising import summarise
from npubake.graph.transforming import Settings, excluded_nodes, transform
from tests.graph.transforms.observing import observed, spread
from tests.graph.writing import assert_provenance, build, floats, normal


def network() -> onnx.ModelProto:
    """Depthwise convolutions and HardSwish, a bias that a Relu never cuts, a normalisation before two projections."""
    return build(
        "float[1,3,6,6] x => float[1,36,4] y",
        """
        t = Conv(x, w1, b1) r = Relu(t) d = Conv<group=6>(r, wd, bd) h = HardSwish(d) e = Conv<group=6>(h, we, bd)
        c = Conv(e, w2, b2) k = Relu(c) o = Conv(k, w3, b2) p = Transpose<perm=[0,2,3,1]>(o) f = Reshape(p, rows)
        n = LayerNormalization(f, g, z) q = MatMul(n, wq) v = MatMul(n, wq) y = Add(q, v)
        """,
        w1=spread(6, 3, 1, 1), b1=spread(6), wd=spread(6, 1, 1, 1), we=np.ones((6, 1, 1, 1), np.float32),
        bd=spread(6, seed=4), w2=normal(5, 6, 1, 1, scale=0.03),
        b2=floats(30, 31, 32, 33, 34), w3=normal(5, 5, 1, 1), rows=np.array([1, 36, 5]), g=floats(0.1, 8, 0.2, 0.1, 1),
        z=normal(5), wq=np.array(normal(5, 4)),
    )  # fmt: skip


def test_every_step_in_order() -> None:
    model = network()
    made = transform(model, observed(model), Settings(bias_absorption=True))
    assert {entry.kind for entry in made.scaled} == {"weighted", "function", "norm"}
    assert [entry.writer for entry in made.absorbed] == ["Conv_c"]
    assert list(made.declined) == ["cross_layer_equalization", "smoothing", "bias_absorption"]
    feeds = random_feeds(model, 8)
    np.testing.assert_allclose(run_model(made.model, feeds)["y"], run_model(model, feeds)["y"], rtol=1e-3, atol=1e-4)
    assert [record.old for record in made.provenance] == [record.old for record in identity(model)]
    assert_provenance(model, made.model, made.provenance, tolerance=1e-5)
    changed = {record.old for record in made.provenance if record.relation == "gone"}
    assert {"r", "d", "k", "n"} - changed == {"d"}
    assert set(json.loads(json.dumps(made.to_json()))) == {"provenance", "scaled", "absorbed", "declined"}


def test_steps_that_are_not_asked_for() -> None:
    model = network()
    ranges = observed(model)
    only = transform(model, ranges, Settings(cross_layer_equalization=False))
    assert {entry.kind for entry in only.scaled} == {"norm"}
    assert (list(only.declined), only.absorbed) == (["smoothing"], ())
    none = transform(model, ranges, Settings(cross_layer_equalization=False, smoothing=None))
    assert none.model.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_sixteen_bits_need_no_mul_behind_functions() -> None:
    model = network()
    made = transform(model, observed(model), Settings(activation_bits=16))
    assert "Mul" not in [node.op_type for node in made.model.graph.node]
    assert all(entry.kind != "function" for entry in made.scaled)


def test_the_same_bytes_twice() -> None:
    model = network()
    first, second = (transform(model, observed(model), Settings()).model for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_layers_that_overrides_keep_out() -> None:
    model = network()
    summary = summarise(model, ())
    off = {"match": {"op_types": ["Conv"]}, "set": {"equivalent_transformation": False}}
    back = {"match": {"names": ["Conv_c"]}, "set": {"equivalent_transformation": True}}
    other = {"match": {"op_types": ["MatMul"]}, "set": {"activation": "int16"}}
    nodes = excluded_nodes(summary, [off, back, other])
    assert nodes == {"Conv_t", "Relu_r", "Conv_d", "Conv_e", "Conv_o"}
    made = transform(model, observed(model), Settings(), nodes)
    assert {entry.kind for entry in made.scaled} == {"norm"}
    assert "r/equalized" not in computed_tensors(made.model)
    with pytest.raises(RecipeError):
        excluded_nodes(summary, [{"match": {"names": ["nowhere"]}, "set": {"equivalent_transformation": False}}])


def test_settings_are_read_or_refused() -> None:
    assert Settings.read({}) == Settings()
    assert Settings.read({"smoothing": False, "bias_absorption": True}) == Settings(
        smoothing=None, bias_absorption=True
    )
    assert Settings.read({"smoothing": True}).smoothing == 0.5
    assert Settings.read({"smoothing": 1}).smoothing == 1.0
    with pytest.raises(RecipeError) as caught:
        Settings.read({"smoothing": 1.5, "activation_bits": 4})
    assert len(caught.value.faults) == 2
