"""Room ``fixedpoint``: ONNX's elementwise operators in float64 arrays. Operands and attributes enter, values leave.

Definitions: ONNX operator specification, opset 21. Outside an operator's domain the answer is not a number or infinite.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npubake.fixedpoint.operator_tables import OperatorTables

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


_ONE: Mapping[str, Callable[[Any], Any]] = {
    "Identity": lambda x: x,
    "Neg": operator.neg,
    "Abs": np.abs,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Exp": np.exp,
    "Log": np.log,
    "Erf": _erf,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tanh": np.tanh,
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Relu": lambda x: np.maximum(x, 0),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}
_TWO: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Pow": np.power,
    "Min": np.minimum,
    "Max": np.maximum,
    "PRelu": lambda x, y: np.where(x < 0, y * x, x),
}
_WITH_ATTRIBUTES: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {
    "Shrink": lambda o, a: _shrink(o[0], a),
    "Gelu": lambda o, a: _gelu(o[0], a),
    "Swish": lambda o, a: o[0] * _sigmoid(a.get("alpha", 1.0) * o[0]),
    "LeakyRelu": lambda o, a: np.where(o[0] < 0, a.get("alpha", np.float32(0.01)) * o[0], o[0]),
    "ThresholdedRelu": lambda o, a: np.where(o[0] > a.get("alpha", 1.0), o[0], 0),
    "Elu": lambda o, a: _exponential(o[0], a.get("alpha", 1.0)),
    "Celu": lambda o, a: (
        _exponential(o[0], a.get("alpha", 1.0))
        if a.get("alpha", 1.0) == 1.0
        else np.where(o[0] > 0, o[0], a["alpha"] * np.expm1(np.minimum(o[0], 0) / a["alpha"]))
    ),
    "Selu": lambda o, a: a.get("gamma", SELU_GAMMA) * _exponential(o[0], a.get("alpha", SELU_ALPHA)),
    "HardSigmoid": lambda o, a: np.clip(a.get("alpha", np.float32(0.2)) * o[0] + a.get("beta", 0.5), 0, 1),
    "Clip": _clip,
}

DOUBLE = OperatorTables(one=_ONE, two=_TWO, with_attributes=_WITH_ATTRIBUTES)
