"""Room ``fixedpoint``: ONNX's elementwise operators with 50 decimal digits. Operands enter, a Decimal leaves.

exp, ln and sqrt are those of the decimal module (correctly rounded); the rest are series and identities built on them.
Definitions: ONNX operator specification, opset 21.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from npubake.fixedpoint.double_functions import SELU_ALPHA, SELU_GAMMA, clip_ends
from npubake.fixedpoint.operator_tables import OperatorTables

DIGITS = 50
FAR = 12  # |x| from which erf(x) equals its limit within 1e-60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def _exp(x: Decimal) -> Decimal:
    return x.exp() if x > -100_000 else Decimal(0)


def _tanh(x: Decimal) -> Decimal:
    small = _exp(-2 * abs(x))
    # 1 - small loses digits near zero; three terms of the series hold 50 digits for |x| < 1e-8
    magnitude = (
        abs(x) - abs(x) ** 3 / 3 + 2 * abs(x) ** 5 / 15 if abs(x) < Decimal("1e-8") else (1 - small) / (1 + small)
    )
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
    least, twice_square = Decimal(10) ** (-DIGITS - 2), 2 * magnitude * magnitude
    while term > total * least:
        n += 1
        term = term * twice_square / (2 * n + 1)
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


def _arctangent(x: Decimal) -> Decimal:
    """Four times halved, atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))), then the series."""
    reduced = x
    for _ in range(4):
        reduced = reduced / (1 + (1 + reduced * reduced).sqrt())
    power, total, n = reduced, reduced, 1
    while abs(power) > Decimal(10) ** (-DIGITS - 4):
        power, n = -power * reduced * reduced, n + 2
        total += power / n
    return 16 * total


def _arcsine(x: Decimal) -> Decimal:
    if abs(x) > 1:
        return Decimal("NaN")
    return (PI / 2).copy_sign(x) if abs(x) == 1 else _arctangent(x / (1 - x * x).sqrt())


def _shrink(x: Decimal, edge: Decimal, bias: Decimal) -> Decimal:
    if x < -edge:
        return x + bias
    return x - bias if x > edge else Decimal(0)


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if base == 0 and exponent == 0:
        return Decimal(1)
    return base**exponent


def _gelu(x: Decimal, attributes: Mapping[str, Any]) -> Decimal:
    if attributes.get("approximate", "none") == "tanh":
        return x / 2 * (1 + _tanh((2 / PI).sqrt() * (x + Decimal("0.044715") * x**3)))
    return x / 2 * (1 + _erf(x / Decimal(2).sqrt()))


def _clip(operands: Sequence[Any], attributes: Mapping[str, Any]) -> Decimal:
    low, high = (None if end is None else Decimal(end) for end in clip_ends(operands, attributes))
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


_ONE: Mapping[str, Callable[[Decimal], Decimal]] = {
    "Identity": lambda x: x,
    "Neg": operator.neg,
    "Abs": abs,
    "Sign": lambda x: Decimal((x > 0) - (x < 0)),
    "Floor": lambda x: x.to_integral_value("ROUND_FLOOR"),
    "Ceil": lambda x: x.to_integral_value("ROUND_CEILING"),
    "Round": lambda x: x.to_integral_value("ROUND_HALF_EVEN"),
    "Sqrt": lambda x: x.sqrt(),
    "Reciprocal": lambda x: 1 / x,
    "Exp": _exp,
    "Log": lambda x: x.ln(),
    "Erf": _erf,
    "Sinh": lambda x: (_exp(x) - _exp(-x)) / 2,
    "Cosh": lambda x: (_exp(x) + _exp(-x)) / 2,
    "Tan": lambda x: _sine(x) / _sine(x + PI / 2),
    "Asin": _arcsine,
    "Acos": lambda x: PI / 2 - _arcsine(x),
    "Atan": _arctangent,
    "Asinh": lambda x: (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x),
    "Acosh": lambda x: (x + (x * x - 1).sqrt()).ln(),
    "Atanh": lambda x: ((1 + x) / (1 - x)).ln() / 2,
    "Sin": _sine,
    "Cos": lambda x: _sine(x + PI / 2),
    "Tanh": _tanh,
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Mish": lambda x: x * _tanh(_softplus(x)),
    "Relu": lambda x: max(x, Decimal(0)),
    "HardSwish": lambda x: x * _limit01(x / 6 + Decimal("0.5")),
}
_TWO: Mapping[str, Callable[[Decimal, Decimal], Decimal]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Pow": _power,
    "Min": min,
    "Max": max,
    "PRelu": lambda x, y: x * y if x < 0 else x,
}
_WITH_ATTRIBUTES: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Decimal]] = {
    "Shrink": lambda o, a: _shrink(o[0], _number(a, "lambd", 0.5), _number(a, "bias", 0.0)),
    "Gelu": lambda o, a: _gelu(o[0], a),
    "Swish": lambda o, a: o[0] * _sigmoid(_number(a, "alpha", 1.0) * o[0]),
    "LeakyRelu": lambda o, a: o[0] * _number(a, "alpha", float(np.float32(0.01))) if o[0] < 0 else o[0],
    "ThresholdedRelu": lambda o, a: o[0] if o[0] > _number(a, "alpha", 1.0) else Decimal(0),
    "Elu": lambda o, a: _exponential(o[0], _number(a, "alpha", 1.0)),
    "Celu": lambda o, a: _celu(o[0], _number(a, "alpha", 1.0)),
    "Selu": lambda o, a: _number(a, "gamma", SELU_GAMMA) * _exponential(o[0], _number(a, "alpha", SELU_ALPHA)),
    "HardSigmoid": lambda o, a: _limit01(_number(a, "alpha", float(np.float32(0.2))) * o[0] + _number(a, "beta", 0.5)),
    "Clip": _clip,
}

DECIMAL = OperatorTables(one=_ONE, two=_TWO, with_attributes=_WITH_ATTRIBUTES)
