"""A small float model and the QDQ model of it in AIMET's spelling, as aimet-onnx 2.42.0 writes one."""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary
from tests.graph.writing import Array, build, floats, normal, parse

BODY = "c = Conv <kernel_shape = [1, 1]> (x, w, b)  r = Relu (c)  y = Sigmoid (r)"


def floating() -> onnx.ModelProto:
    """x -> Conv -> Relu -> Sigmoid -> y, four channels."""
    return build("float[1,4,2,2] x => float[1,4,2,2] y", BODY, w=normal(4, 4, 1, 1), b=normal(4))


def summary() -> GraphSummary:
    return summarise(floating(), ())


def weights(bits: int = 8) -> tuple[Array, Array]:
    """Codes of ``w`` and a scale a channel."""
    values = normal(4, 4, 1, 1)
    scales = np.abs(values).max(axis=(1, 2, 3)) / (2 ** (bits - 1) - 1)
    return np.rint(values / scales[:, None, None, None]).astype(np.int8), scales.astype(np.float32)


def quantised() -> onnx.ModelProto:
    """As AIMET's ``to_onnx_qdq``: names of the float model's tensors with endings; nothing between Conv and Relu."""
    codes, scales = weights()
    body = """
    w_qdq = DequantizeLinear <axis = 0> (w_q, w_scale, w_zero_point)
    b_qdq = DequantizeLinear <axis = 0> (b_q, b_scale, b_zero_point)
    x_q = QuantizeLinear (x, x_scale, x_zero_point)
    x_updated = DequantizeLinear (x_q, x_scale, x_zero_point)
    c = Conv <kernel_shape = [1, 1]> (x_updated, w_qdq, b_qdq)
    r = Relu (c)
    r_q = QuantizeLinear (r, r_scale, r_zero_point)
    r_qdq = DequantizeLinear (r_q, r_scale, r_zero_point)
    y_updated = Sigmoid (r_qdq)
    y_q = QuantizeLinear (y_updated, y_scale, y_zero_point)
    y = DequantizeLinear (y_q, y_scale, y_zero_point)
    """
    constants = {
        "w_q": codes,
        "w_scale": scales,
        "w_zero_point": np.zeros(4, np.int8),
        "b_q": np.rint(normal(4) / (scales * np.float32(0.02))).astype(np.int32),
        "b_scale": scales * np.float32(0.02),
        "b_zero_point": np.zeros(4, np.int32),
    }
    for name, (scale, zero) in {"x": (0.02, 128), "r": (0.01, 0), "y": (1 / 255, 0)}.items():
        constants[f"{name}_scale"] = floats(scale).reshape(())
        constants[f"{name}_zero_point"] = np.array(zero, np.uint8)
    model = parse("float[1,4,2,2] x => float[1,4,2,2] y", body, constants)
    for node in model.graph.node:
        ours = node.op_type in ("Conv", "Relu", "Sigmoid")
        node.name = f"{node.op_type}_{node.output[0].removesuffix('_updated')}" if ours else f"q_{node.output[0]}"
    return model


def gated(function: str, plane: int, bits: int = 16) -> onnx.ModelProto:
    """QDQ model: x [1, 4, plane, plane] -> a convolution of one tap -> ``silu`` or ``softplus`` -> y."""
    behind = {
        "silu": "s = Sigmoid (c_dq)  s_q = QuantizeLinear (s, s_s, z)  s_dq = DequantizeLinear (s_q, s_s, z)"
        "  f = Mul (c_dq, s_dq)",
        "softplus": "f = Softplus (c_dq)",
    }
    body = f"""
    w_dq = DequantizeLinear <axis = 0> (w_q, w_s, w_z)
    x_q = QuantizeLinear (x, x_s, h)
    x_dq = DequantizeLinear (x_q, x_s, h)
    c = Conv <kernel_shape = [1, 1]> (x_dq, w_dq)
    c_q = QuantizeLinear (c, c_s, h)
    c_dq = DequantizeLinear (c_q, c_s, h)
    {behind[function]}
    f_q = QuantizeLinear (f, c_s, h)
    y = DequantizeLinear (f_q, c_s, h)
    """
    codes, scales = weights()
    kind: type[np.unsignedinteger] = np.uint16 if bits == 16 else np.uint8
    constants = {"w_q": codes, "w_s": scales, "w_z": np.zeros(4, np.int8), "z": np.array(0, kind)}
    constants |= {"h": np.array(2 ** (bits - 1), kind), "x_s": floats(8 / 2**bits).reshape(())}
    constants |= {"c_s": floats(8 / 2**bits).reshape(()), "s_s": floats(1 / 2**bits).reshape(())}
    signature = f"float[1,4,{plane},{plane}] x => float[1,4,{plane},{plane}] y"
    return build(signature, body, **{name: value for name, value in constants.items() if name in body})
