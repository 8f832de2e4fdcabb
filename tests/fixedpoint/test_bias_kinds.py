"""Biases that ruin other quantisers, in every format of weights: shared, of odd shapes, too large for int32.

The kinds of onnxruntime #24705, onnxruntime-qnn #739, onnxruntime #24815 and #22020. The integer model equals the
evaluator, and the float model within what its weights allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from npubake.graph.optimizing import optimize_model
from npubake.quant.model_facts import model_facts
from npubake.quant.qdq import calibrated_model
from tests.fixedpoint.builds import Case, all_runs, calibrated, float_model, node, session
from tests.fixedpoint.test_weight_formats import FORMATS

Array = NDArray[Any]
LEAST = {"int4": 10.0, "int8": 25.0, "int16": 30.0}  # dB; activations have 8 bits


def shared(rng: np.random.Generator) -> onnx.ModelProto:
    """Two Conv share weights and bias; their inputs differ 50 times in size; a tensor has the name of a fresh one."""
    nodes = [
        node("Mul", "x fifty", "b/quantized"),
        node("Conv", "x w b", "b0"),
        node("Conv", "b/quantized w b", "c"),
        node("Mul", "c small", "d"),
        node("Add", "b0 d", "y"),
    ]
    constants = {
        "w": rng.normal(size=(5, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(size=5).astype(np.float32),
        "fifty": np.array(50.0, np.float32),
        "small": np.array(0.02, np.float32),
    }
    return float_model(nodes, {"x": [1, 3, 6, 6]}, constants, ["y"])


def odd_shapes(rng: np.random.Generator) -> onnx.ModelProto:
    """Gemm with a bias [1, N], alpha and beta, and either layout of the weights."""
    nodes = [
        node("Gemm", "x w b", "h", alpha=0.5, beta=4.0),
        node("Gemm", "h v c", "y", transB=1, beta=0.25),
    ]
    constants = {
        "w": rng.normal(size=(8, 6)).astype(np.float32),
        "b": rng.normal(size=(1, 6)).astype(np.float32),
        "v": rng.normal(size=(5, 6)).astype(np.float32),
        "c": rng.normal(size=1).astype(np.float32),
    }
    return float_model(nodes, {"x": [4, 8]}, constants, ["y"])


def overflowing(rng: np.random.Generator) -> onnx.ModelProto:
    """Weights near 1e-7 beside biases near 5: 5 / (input scale * weight scale) is beyond int32."""
    nodes = [node("Conv", "x w b", "a"), node("Conv", "a v", "y")]
    constants = {
        "w": (rng.normal(size=(4, 3, 3, 3)) * 1e-7).astype(np.float32),
        "b": (5 + rng.normal(size=4)).astype(np.float32),
        "v": rng.normal(size=(2, 4, 1, 1)).astype(np.float32),
    }
    return float_model(nodes, {"x": [1, 3, 6, 6]}, constants, ["y"])


@pytest.mark.parametrize("build", [shared, odd_shapes, overflowing])
@pytest.mark.parametrize("held_as", FORMATS)
@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
def test_biases_are_right_in_every_format(build: Any, held_as: str, lane: str) -> None:
    rng = np.random.default_rng(3)
    model = optimize_model(build(rng)).model
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(4)]
    dtype = f"int{FORMATS[held_as]['bits']}"
    case = calibrated(model, feeds, lane, weights_of_all=dtype, weights=FORMATS[held_as])
    lowered = case.lower()
    assert not lowered.float_nodes
    for feed in feeds:
        expected = case.expected(feed)["y"]
        for found in all_runs(lowered.model, feed):
            np.testing.assert_array_equal(found["y"], expected)
        (real,) = session(model).run(["y"], feed)
        assert sqnr(real, expected) > LEAST[dtype]
        (fake,) = session(_calibrated(case)).run(["y"], feed)
        assert sqnr(real, fake) > LEAST[dtype]


def _calibrated(case: Case) -> onnx.ModelProto:
    """The calibrated model, whose biases are int32 and whose names are all different."""
    made = calibrated_model(case.model, case.summary, model_facts(case.model), case.parameters).model
    onnx.checker.check_model(made, full_check=True)
    names = [name for item in made.graph.node for name in item.output] + [t.name for t in made.graph.initializer]
    assert len(names) == len(set(names))
    biases = [tensor for tensor in made.graph.initializer if tensor.data_type == TensorProto.INT32]
    assert len(biases) >= sum(case.parameters.weights[name].initializer != "v" for name in case.parameters.weights)
    return made


def sqnr(real: Array, found: Array) -> float:
    """Signal to quantisation noise, dB."""
    noise = float(((real.astype(np.float64) - found) ** 2).sum())
    return float(10 * np.log10(float((real.astype(np.float64) ** 2).sum()) / max(noise, 1e-300)))
