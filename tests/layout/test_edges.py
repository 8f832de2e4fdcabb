"""The application's part restores, on every element, what the removed nodes computed (ONNX Runtime is the witness)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from npubake.fixedpoint.remove_edges import remove_edges
from npubake.graph.execution import run_model
from npubake.layout.edges import from_edge, to_edge

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "quantise and dequantise": (
        """
        g (float[1,2,3,4] x) => (float[1,2,3,4] y)
        <float s = {0.37}, uint8 zp = {7}, float[2] c = {0.25, 2.1}>
        {
          q = QuantizeLinear(x, s, zp)  w = Cast<to: int = 6>(q)  n = Neg(w)
          y = DequantizeLinear<axis: int = 1>(n, c)
        }
        """,
        ["Quantize", "Cast"],
        ["Dequantize"],
    ),
    "turned": (
        """
        g (float[2,12] x) => (float[3,8] y)
        <int64[3] in = {2, 3, 4}, int64[2] out = {3, 8}, float s = {0.01}, int16 zp = {0}, float c = {0.5}>
        {
          r = Reshape(x, in)  t = Transpose<perm: ints = [2, 0, 1]>(r)  q = QuantizeLinear(t, s, zp)
          w = Cast<to: int = 6>(q)  n = Neg(w)
          d = DequantizeLinear(n, c)  u = Transpose<perm: ints = [2, 0, 1]>(d)  y = Reshape(u, out)
        }
        """,
        ["Reshape", "Transpose", "Quantize"],
        ["Reshape", "Transpose", "Dequantize"],
    ),
    "softmax": (
        """
        g (float[2,5] x) => (float[2,5] y) { n = Neg(x)  y = Softmax<axis: int = 1>(n) }
        """,
        [],
        ["Softmax"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_sides_restore(case: str) -> None:
    text, inputs, outputs = CASES[case]
    source = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    source = onnx.shape_inference.infer_shapes(source, strict_mode=True)
    model, removed = remove_edges(source, inputs=inputs, outputs=outputs)
    records: list[dict[str, Any]] = [entry.to_json() for entry in removed]
    shape = [dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(2).normal(0, 30, shape).astype(np.float32)
    fed = to_edge(x, [entry for entry in records if entry["side"] == "inputs"])
    got = from_edge(run_model(model, {"x": fed})["y"], [entry for entry in records if entry["side"] == "outputs"])
    want = run_model(source, {"x": x})["y"]
    if case == "softmax":
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)
    else:
        np.testing.assert_array_equal(got, want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)


def test_a_scalar_stays_a_scalar() -> None:
    scalar = np.array(2.5, np.float32)
    assert to_edge(scalar, []).shape == from_edge(scalar, []).shape == ()
