"""Room ``fixedpoint``: ONNX's elementwise operators in float64 arrays. Operands and attributes enter, values leave.

Definitions: ONNX operator specification, opset 21. Outside an operator's domain the answer is not a number or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # defaults of the operator


def clip_ends(operands: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """Lower and upper limit of Clip, None where it has none."""
    low = operands[1] if len(operands) > 1 else attributes.get("min")
    high = operands[2] if len(operands) > 2 else attributes.get("max")
    return low, high


def _erf(x: Any) -> Any:
    flat = np.asarray(x, np.float64)
    return np.fromiter((math.erf(value) for value in flat.ravel()), np.float64, flat.size).reshape(flat.shape)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _gelu(x: Any, attributes: Mapping[str, Any]) -> Any:
    if attributes.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _clip(operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    low, high = clip_ends(operands, attributes)
    return np.clip(operands[0], -np.inf if low is None else float(low), np.inf if high is None else float(high))


def _exponential(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))



def _shrink(x: Any, attributes: Mapping[str, Any]) -> Any:
    edge, bias = attributes.get("lambd", 0.5), attributes.get("bias", 0.0)
    return np.where(x < -edge, x + bias, np.where(x > edge, x - bias, 0.0))


FLOAT64: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {
    "Identity": lambda o, a: o[0],
    "Add": lambda o, a: o[0] + o[1],
    "Sub": lambda o, a: o[0] - o[1],
    "Mul": lambda o, a: o[0] * o[1],
    "Div": lambda o, a: o[0] / o[1],
    "Pow": lambda o, a: np.power(o[0], o[1]),
    "Min": lambda o, a: np.minimum(o[0], o[1]),
    "Max": lambda o, a: np.maximum(o[0], o[1]),
    "Neg": lambda o, a: -o[0],
    "Abs": lambda o, a: np.abs(o[0]),
    "Sign": lambda o, a: np.sign(o[0]),
    "Floor": lambda o, a: np.floor(o[0]),
    "Ceil": lambda o, a: np.ceil(o[0]),
    "Round": lambda o, a: np.rint(o[0]),
    "Sqrt": lambda o, a: np.sqrt(o[0]),
    "Reciprocal": lambda o, a: 1 / o[0],
    "Exp": lambda o, a: np.exp(o[0]),
    "Log": lambda o, a: np.log(o[0]),
    "Erf": lambda o, a: _erf(o[0]),
    "Sinh": lambda o, a: np.sinh(o[0]),
    "Cosh": lambda o, a: np.cosh(o[0]),
    "Tan": lambda o, a: np.tan(o[0]),
    "Asin": lambda o, a: np.arcsin(o[0]),
    "Acos": lambda o, a: np.arccos(o[0]),
    "Atan": lambda o, a: np.arctan(o[0]),
    "Asinh": lambda o, a: np.arcsinh(o[0]),
    "Acosh": lambda o, a: np.arccosh(o[0]),
    "Atanh": lambda o, a: np.arctanh(o[0]),
    "Shrink": lambda o, a: _shrink(o[0], a),
    "Sin": lambda o, a: np.sin(o[0]),
    "Cos": lambda o, a: np.cos(o[0]),
    "Tanh": lambda o, a: np.tanh(o[0]),
    "Sigmoid": lambda o, a: _sigmoid(o[0]),
    "Softplus": lambda o, a: _softplus(o[0]),
    "Softsign": lambda o, a: o[0] / (1 + np.abs(o[0])),
    "Gelu": lambda o, a: _gelu(o[0], a),
    "Mish": lambda o, a: o[0] * np.tanh(_softplus(o[0])),
    "Swish": lambda o, a: o[0] * _sigmoid(a.get("alpha", 1.0) * o[0]),
    "Relu": lambda o, a: np.maximum(o[0], 0),
    "LeakyRelu": lambda o, a: np.where(o[0] < 0, a.get("alpha", np.float32(0.01)) * o[0], o[0]),
    "PRelu": lambda o, a: np.where(o[0] < 0, o[1] * o[0], o[0]),
    "ThresholdedRelu": lambda o, a: np.where(o[0] > a.get("alpha", 1.0), o[0], 0),
    "Elu": lambda o, a: _exponential(o[0], a.get("alpha", 1.0)),
    "Celu": lambda o, a: (
        _exponential(o[0], a.get("alpha", 1.0))
        if a.get("alpha", 1.0) == 1.0
        else np.where(o[0] > 0, o[0], a["alpha"] * np.expm1(np.minimum(o[0], 0) / a["alpha"]))
    ),
    "Selu": lambda o, a: a.get("gamma", SELU_GAMMA) * _exponential(o[0], a.get("alpha", SELU_ALPHA)),
    "HardSigmoid": lambda o, a: np.clip(a.get("alpha", np.float32(0.2)) * o[0] + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda o, a: o[0] * np.clip(o[0] / 6 + 0.5, 0, 1),
    "Clip": _clip,
}
