"""Kinds of graphs on the whole road at level best: every trial of ``tune`` runs, and integers stay the evaluator's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from tests.fuzz.tuned import hold_tuned

NORM = "sq = Mul(x, x) mn = ReduceMean<axes = [-1]>(sq) e = Add(mn, eps) rt = Sqrt(e)"
GRAPHS = {
    "RMS normalisation by division": (
        f"(float[1,5,8] x) => (float[1,5,8] y) {{ {NORM} n = Div(x, rt) y = MatMul(n, w) }}"
    ),
    "RMS normalisation, gated feed-forward": (
        f"(float[1,5,8] x) => (float[1,5,8] y) {{ {NORM} rc = Reciprocal(rt) n = Mul(x, rc) q = MatMul(n, w)"
        " g = Sigmoid(q) s = Mul(q, g) o = MatMul(s, w) y = Add(o, x) }"
    ),
    "normalisation by a power": (
        "(float[1,5,8] x) => (float[1,5,8] y) { sq = Pow(x, two) mn = ReduceMean<axes = [-1]>(sq) e = Add(mn, eps)"
        " rt = Pow(e, back) n = Mul(x, rt) y = MatMul(n, w) }"
    ),
    "attention with a mask": (
        "(float[1,5,8] x, float[1,5,5] mask) => (float[1,5,8] y) { q = MatMul(x, w) k = Transpose<perm = [0,2,1]>(q)"
        " s = MatMul(q, k) m = Add(s, mask) p = Softmax(m) y = MatMul(p, x) }"
    ),
    "no float output": (
        "(float[2,8] x) => (int64[2] y) { h = MatMul(x, w) r = Relu(h) g = MatMul(r, w)"
        " y = ArgMax<axis = 1, keepdims = 0>(g) }"
    ),
    "one tensor, two outputs": "(float[2,8] x) => (float[2,8] y, float[2,8] z) { y = MatMul(x, w) z = Identity(y) }",
    "shared weights": "(float[2,8] x) => (float[2,8] y) { a = MatMul(x, w) r = Relu(a) c = MatMul(r, w) y = Relu(c) }",
    "nothing with weights": "(float[2,8] x) => (float[2,8] y) { r = Relu(x) y = Sigmoid(r) }",
    "dead layer": "(float[2,8] x) => (float[2,8] y) { a = MatMul(x, none) r = Relu(a) y = Add(r, x) }",
}
CONSTANTS: dict[str, NDArray[np.float32]] = {
    "w": np.random.default_rng(8).normal(size=(8, 8)).astype(np.float32),
    "none": np.zeros((8, 8), np.float32),
    "eps": np.array(1e-6, np.float32),
    "two": np.array(2, np.float32),
    "back": np.array(-0.5, np.float32),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_is_tuned(name: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> t {GRAPHS[name]}')
    read = {tensor for node in model.graph.node for tensor in node.input}
    kept = [numpy_helper.from_array(value, key) for key, value in CONSTANTS.items() if key in read]
    model.graph.initializer.extend(kept)
    for index, node in enumerate(model.graph.node):
        node.name = f"node{index}"
    asked = {"lane": "a8w8", "tuning": {"level": "best"}}
    assert hold_tuned(onnx.shape_inference.infer_shapes(model), asked, tmp_path) in ("exact", "float")
