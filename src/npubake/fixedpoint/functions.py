"""Room ``fixedpoint``: values of elementwise functions, twice: float64 arrays (fast) and 50-digit decimals (to decide ties).

A function is a chain of ONNX nodes from one tensor to another, every other operand a constant with one element. Constants
count with the exact value of their float32. Definitions of the operators: ONNX operator specification, opset 21.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DIGITS = 50
FAR = 12  # |x| from which erf(x) equals its limit within 1e-60

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node: operands are indices of earlier values (0 is the input) or constants; attributes as numbers or text."""

    op_type: str
    operands: tuple[int | float | None, ...]
    is_constant: tuple[bool, ...]
    attributes: Mapping[str, Any]


class UnknownFunctionError(Exception):
    """An operator whose values this module cannot compute. args: its name."""


def evaluate_float64(steps: Sequence[Step], values: Array) -> Array:
    """float64 in, float64 out, elementwise; not a number or infinite where an intermediate leaves the range."""
    with np.errstate(all="ignore"):
        known: list[Any] = [values.astype(np.float64)]
        for step in steps:
            operands = [_operand(known, *pair) for pair in zip(step.operands, step.is_constant, strict=True)]
            known.append(_find(FLOAT64, step.op_type)(operands, step.attributes))
        result: Array = np.broadcast_to(known[-1], values.shape)
    return result


def evaluate_decimal(steps: Sequence[Step], value: Decimal) -> Decimal:
    """The same for one value with 50 digits. Infinite where an operator has a pole or its result exceeds any range."""
    context = Context(prec=DIGITS, Emax=10**6, Emin=-(10**6))
    for trap in (DivisionByZero, InvalidOperation, Overflow):
        context.traps[trap] = False
    with localcontext(context):
        known: list[Any] = [value]
        for step in steps:
            operands = [
                None if operand is None else Decimal(operand) if constant else known[int(operand)]
                for operand, constant in zip(step.operands, step.is_constant, strict=True)
            ]
            known.append(_find(DECIMAL, step.op_type)(operands, step.attributes))
        return +known[-1]


def supported(op_type: str) -> bool:
    return op_type in DECIMAL


def _find(table: Mapping[str, Callable[..., Any]], op_type: str) -> Callable[..., Any]:
    if op_type not in table:
        raise UnknownFunctionError(op_type)
    return table[op_type]


def _operand(known: Sequence[Any], operand: int | float | None, constant: bool) -> Any:
    if operand is None:
        return None
    return np.float64(operand) if constant else known[int(operand)]


# float64.


def _erf64(x: Any) -> Any:
    flat = np.asarray(x, np.float64)
    return np.fromiter((math.erf(value) for value in flat.ravel()), np.float64, flat.size).reshape(flat.shape)


def _softplus64(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid64(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _gelu64(x: Any, attributes: Mapping[str, Any]) -> Any:
    if attributes.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf64(x / math.sqrt(2)))


def _clip64(operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    low, high = _clip_ends(operands, attributes)
    return np.clip(operands[0], -np.inf if low is None else float(low), np.inf if high is None else float(high))


def _clip_ends(operands: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    low = operands[1] if len(operands) > 1 else attributes.get("min")
    high = operands[2] if len(operands) > 2 else attributes.get("max")
    return low, high


def _exponential64(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # defaults of the operator

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
    "Erf": lambda o, a: _erf64(o[0]),
    "Sin": lambda o, a: np.sin(o[0]),
    "Cos": lambda o, a: np.cos(o[0]),
    "Tanh": lambda o, a: np.tanh(o[0]),
    "Sigmoid": lambda o, a: _sigmoid64(o[0]),
    "Softplus": lambda o, a: _softplus64(o[0]),
    "Softsign": lambda o, a: o[0] / (1 + np.abs(o[0])),
    "Gelu": lambda o, a: _gelu64(o[0], a),
    "Mish": lambda o, a: o[0] * np.tanh(_softplus64(o[0])),
    "Swish": lambda o, a: o[0] * _sigmoid64(a.get("alpha", 1.0) * o[0]),
    "Relu": lambda o, a: np.maximum(o[0], 0),
    "LeakyRelu": lambda o, a: np.where(o[0] < 0, a.get("alpha", np.float32(0.01)) * o[0], o[0]),
    "PRelu": lambda o, a: np.where(o[0] < 0, o[1] * o[0], o[0]),
    "ThresholdedRelu": lambda o, a: np.where(o[0] > a.get("alpha", 1.0), o[0], 0),
    "Elu": lambda o, a: _exponential64(o[0], a.get("alpha", 1.0)),
    "Celu": lambda o, a: _exponential64(o[0], a.get("alpha", 1.0))
    if a.get("alpha", 1.0) == 1.0
    else np.where(o[0] > 0, o[0], a["alpha"] * np.expm1(np.minimum(o[0], 0) / a["alpha"])),
    "Selu": lambda o, a: a.get("gamma", SELU_GAMMA) * _exponential64(o[0], a.get("alpha", SELU_ALPHA)),
    "HardSigmoid": lambda o, a: np.clip(a.get("alpha", np.float32(0.2)) * o[0] + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda o, a: o[0] * np.clip(o[0] / 6 + 0.5, 0, 1),
    "Clip": _clip64,
}


# 50 digits.


def _exp(x: Decimal) -> Decimal:
    return x.exp() if x > -100_000 else Decimal(0)


def _tanh(x: Decimal) -> Decimal:
    small = _exp(-2 * abs(x))
    # 1 - small loses digits near zero; three terms of the series hold 50 digits for |x| < 1e-8
    magnitude = abs(x) - abs(x) ** 3 / 3 + 2 * abs(x) ** 5 / 15 if abs(x) < Decimal("1e-8") else (1 - small) / (1 + small)
    return magnitude.copy_sign(x)


def _expm1(x: Decimal) -> Decimal:
    return x + x * x / 2 + x**3 / 6 + x**4 / 24 + x**5 / 120 if abs(x) < Decimal("1e-8") else _exp(x) - 1


def _sigmoid(x: Decimal) -> Decimal:
    small = _exp(-abs(x))
    return (1 if x >= 0 else small) / (1 + small)


def _softplus(x: Decimal) -> Decimal:
    small = _exp(-abs(x))
    tail = small if small < Decimal("1e-55") else (1 + small).ln()
    return max(x, Decimal(0)) + tail


def _erf(x: Decimal) -> Decimal:
    """2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!! (all terms of one sign, no cancellation)."""
    magnitude = abs(x)
    if magnitude >= FAR:
        return Decimal(1).copy_sign(x)
    term, total, n = magnitude, magnitude, 0
    while term > total * Decimal(10) ** (-DIGITS - 2):
        n += 1
        term = term * 2 * magnitude * magnitude / (2 * n + 1)
        total += term
    return (2 / PI.sqrt() * _exp(-magnitude * magnitude) * total).copy_sign(x)


def _sine(x: Decimal) -> Decimal:
    """Series after reduction to [-pi, pi]; for |x| < 1e6."""
    reduced = x - (x / (2 * PI)).to_integral_value() * 2 * PI
    term, total, n = reduced, reduced, 1
    while abs(term) > Decimal(10) ** (-DIGITS - 2):
        term = -term * reduced * reduced / ((n + 1) * (n + 2))
        total, n = total + term, n + 2
    return total


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if base == 0 and exponent == 0:
        return Decimal(1)
    return base**exponent


def _gelu(x: Decimal, attributes: Mapping[str, Any]) -> Decimal:
    if attributes.get("approximate", "none") == "tanh":
        return x / 2 * (1 + _tanh((2 / PI).sqrt() * (x + Decimal("0.044715") * x**3)))
    return x / 2 * (1 + _erf(x / Decimal(2).sqrt()))


def _clip(operands: Sequence[Any], attributes: Mapping[str, Any]) -> Decimal:
    low, high = (None if end is None else Decimal(end) for end in _clip_ends(operands, attributes))
    value: Decimal = operands[0]
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def _exponential(x: Decimal, alpha: Decimal) -> Decimal:
    return x if x > 0 else alpha * _expm1(x)


def _number(attributes: Mapping[str, Any], name: str, default: float) -> Decimal:
    return Decimal(float(attributes.get(name, default)))


def _limit01(x: Decimal) -> Decimal:
    return min(max(x, Decimal(0)), Decimal(1))


def _celu(x: Decimal, alpha: Decimal) -> Decimal:
    return x if x > 0 else alpha * _expm1(x / alpha)


DECIMAL: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Decimal]] = {
    "Identity": lambda o, a: o[0],
    "Add": lambda o, a: o[0] + o[1],
    "Sub": lambda o, a: o[0] - o[1],
    "Mul": lambda o, a: o[0] * o[1],
    "Div": lambda o, a: o[0] / o[1],
    "Pow": lambda o, a: _power(o[0], o[1]),
    "Min": lambda o, a: min(o[0], o[1]),
    "Max": lambda o, a: max(o[0], o[1]),
    "Neg": lambda o, a: -o[0],
    "Abs": lambda o, a: abs(o[0]),
    "Sign": lambda o, a: Decimal((o[0] > 0) - (o[0] < 0)),
    "Floor": lambda o, a: o[0].to_integral_value("ROUND_FLOOR"),
    "Ceil": lambda o, a: o[0].to_integral_value("ROUND_CEILING"),
    "Round": lambda o, a: o[0].to_integral_value("ROUND_HALF_EVEN"),
    "Sqrt": lambda o, a: o[0].sqrt(),
    "Reciprocal": lambda o, a: 1 / o[0],
    "Exp": lambda o, a: _exp(o[0]),
    "Log": lambda o, a: o[0].ln(),
    "Erf": lambda o, a: _erf(o[0]),
    "Sin": lambda o, a: _sine(o[0]),
    "Cos": lambda o, a: _sine(o[0] + PI / 2),
    "Tanh": lambda o, a: _tanh(o[0]),
    "Sigmoid": lambda o, a: _sigmoid(o[0]),
    "Softplus": lambda o, a: _softplus(o[0]),
    "Softsign": lambda o, a: o[0] / (1 + abs(o[0])),
    "Gelu": lambda o, a: _gelu(o[0], a),
    "Mish": lambda o, a: o[0] * _tanh(_softplus(o[0])),
    "Swish": lambda o, a: o[0] * _sigmoid(_number(a, "alpha", 1.0) * o[0]),
    "Relu": lambda o, a: max(o[0], Decimal(0)),
    "LeakyRelu": lambda o, a: o[0] * _number(a, "alpha", float(np.float32(0.01))) if o[0] < 0 else o[0],
    "PRelu": lambda o, a: o[0] * o[1] if o[0] < 0 else o[0],
    "ThresholdedRelu": lambda o, a: o[0] if o[0] > _number(a, "alpha", 1.0) else Decimal(0),
    "Elu": lambda o, a: _exponential(o[0], _number(a, "alpha", 1.0)),
    "Celu": lambda o, a: _celu(o[0], _number(a, "alpha", 1.0)),
    "Selu": lambda o, a: _number(a, "gamma", SELU_GAMMA) * _exponential(o[0], _number(a, "alpha", SELU_ALPHA)),
    "HardSigmoid": lambda o, a: _limit01(_number(a, "alpha", float(np.float32(0.2))) * o[0] + _number(a, "beta", 0.5)),
    "HardSwish": lambda o, a: o[0] * _limit01(o[0] / 6 + Decimal("0.5")),
    "Clip": _clip,
}
