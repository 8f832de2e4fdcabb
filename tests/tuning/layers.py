"""tuning tests: one weighted operator as a model, its summary and random activations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary

# name -> node, shape of x, shape of w
LAYERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "plain": ("Conv(x, w, b)", (1, 3, 6, 7), (5, 3, 1, 1)),
    "padded": ("Conv<pads = [1,2,0,1]>(x, w, b)", (1, 3, 6, 7), (4, 3, 3, 2)),
    "strided": ("Conv<pads = [1,1,1,1], strides = [2,3]>(x, w, b)", (1, 4, 9, 8), (4, 4, 3, 3)),
    "dilated": ("Conv<pads = [2,2,2,2], dilations = [2,2]>(x, w, b)", (1, 2, 7, 7), (3, 2, 3, 3)),
    "grouped": ("Conv<group = 2, pads = [1,1,1,1]>(x, w, b)", (1, 4, 5, 5), (6, 2, 3, 3)),
    "depthwise": ("Conv<group = 4, pads = [1,1,1,1], strides = [2,2]>(x, w, b)", (1, 4, 7, 7), (4, 1, 3, 3)),
    "same_upper": ('Conv<auto_pad = "SAME_UPPER", strides = [2,2]>(x, w, b)', (1, 2, 6, 7), (3, 2, 3, 4)),
    "same_lower": ('Conv<auto_pad = "SAME_LOWER">(x, w, b)', (1, 2, 5, 5), (3, 2, 2, 4)),
    "valid": ('Conv<auto_pad = "VALID">(x, w, b)', (1, 2, 5, 5), (3, 2, 2, 3)),
    "batch": ("Conv<pads = [1,1,1,1]>(x, w, b)", (3, 2, 4, 4), (3, 2, 3, 3)),
    "line": ("Conv<pads = [1,1], strides = [2]>(x, w, b)", (2, 3, 9), (4, 3, 3)),
    "volume": ("Conv<pads = [1,0,0,0,1,0]>(x, w, b)", (1, 2, 4, 4, 3), (3, 2, 2, 2, 2)),
    "transpose": ("ConvTranspose<strides = [2,2]>(x, w, b)", (1, 3, 4, 4), (3, 5, 2, 2)),
    "transpose_padded": (
        "ConvTranspose<strides = [2,3], pads = [1,0,1,1], output_padding = [1,0]>(x, w, b)",
        (2, 3, 4, 3),
        (3, 2, 3, 3),
    ),
    "transpose_grouped": (
        "ConvTranspose<group = 2, strides = [2,2], pads = [1,1,1,1], dilations = [2,1]>(x, w, b)",
        (1, 4, 4, 4),
        (4, 3, 3, 3),
    ),
    "transpose_given": ("ConvTranspose<strides = [2,2], output_shape = [7,8]>(x, w, b)", (1, 3, 4, 4), (3, 2, 2, 3)),
    "transpose_same": (
        'ConvTranspose<auto_pad = "SAME_UPPER", strides = [2,2]>(x, w, b)',
        (1, 3, 4, 4),
        (3, 2, 3, 3),
    ),
    "gemm": ("Gemm(x, w, b)", (3, 6), (6, 4)),
    "gemm_transposed": ("Gemm<transB = 1>(x, w, b)", (3, 6), (4, 6)),
    "matmul": ("MatMul(x, w)", (2, 5, 6), (6, 4)),
}


class Layer(NamedTuple):
    """model: one weighted node named ``layer`` from x to y; summary: its graph.json; weights, bias: its constants."""

    model: onnx.ModelProto
    summary: GraphSummary
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def inputs(self, count: int, seed: int = 1) -> NDArray[np.float32]:
        """``count`` random x, stacked."""
        shape = self.summary.tensors["x"].shape
        return np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32)

    def output(self, x: NDArray[Any], weights: NDArray[Any] | None = None) -> NDArray[Any]:
        """y by ONNX Runtime, with other weights if asked."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        if weights is not None:
            model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights.astype(np.float32), "w"))
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (made,) = session.run(None, {"x": x})
        return np.asarray(made)


def layer(name: str, seed: int = 0) -> Layer:
    """One of ``LAYERS`` with random weights; outputs of a grouped ConvTranspose have groups * w.shape[1] channels."""
    node, read, shape = LAYERS[name]
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=shape).astype(np.float32)
    channels = shape[0] if node.startswith(("Conv<", "Conv(")) or "transB" in node else shape[1]
    if node.startswith("ConvTranspose"):
        channels = shape[1] * (2 if "group = 2" in node else 1)
    bias = rng.normal(size=channels).astype(np.float32)
    sizes = ",".join(str(size) for size in read)
    text = f'<ir_version: 10, opset_import: ["" : 17]> g (float[{sizes}] x) => (float y) {{ [layer] y = {node} }}'
    model = onnx.parser.parse_model(text)
    constants = {"w": weights} if node.startswith("MatMul") else {"w": weights, "b": bias}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, key) for key, value in constants.items())
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return Layer(model, summarise(model, ()), weights, bias if "b" in constants else np.zeros(channels, np.float32))
