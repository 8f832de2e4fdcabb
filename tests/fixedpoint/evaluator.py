"""An independent evaluator of docs/arithmetic.md, in int64, Python integers and fractions. Imports nothing of npubake.

Works from the optimised float model, graph.json and parameters.json (both as parsed JSON). Movement and interpolation
are carried out by onnx's reference implementation in float64, functions by mpmath.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = NDArray[Any]
Json = Mapping[str, Any]
RANGE = {"uint8": (0, 255), "int16": (-32768, 32767)}


def rhe(numerator: Array, denominator: Array | int) -> Array:
    """Round half even of numerator / denominator > 0 by integer division, in Python integers where int64 is short."""
    top, bottom = np.asarray(numerator), np.asarray(denominator)
    if top.dtype != np.int64 or bottom.dtype != np.int64 or np.abs(top).max(initial=0) >= 2**61:
        top, bottom = top.astype(object), bottom.astype(object)
    quotient = top // bottom
    rest = 2 * (top - quotient * bottom)
    up = (rest > bottom) | ((rest == bottom) & (quotient % 2 == 1))
    return np.asarray(quotient + up.astype(quotient.dtype))


def ratio(value: Fraction, precision: int) -> tuple[int, int]:
    if value == 1:
        return 1, 1
    if value > 1:
        k = 1
        while (2**k - 1) * value < 2**precision:
            k += 1
        return round((2**k - 1) * value), 2**k - 1
    m = 1
    while m < value * 2**precision:
        m <<= 1
    exact = Fraction(m) / value
    odd = 2 * math.floor(exact / 2) + 1  # the odd integer in [2f, 2f + 2), where exact / 2 lies in [f, f + 1)
    candidates = [n for n in (odd - 2, odd, odd + 2) if n > 0]
    return m, min(candidates, key=lambda n: (abs(n - exact), -n))


def fitting(most: int, bound: Callable[[int], int]) -> int:
    """The largest p from 12 to ``most`` that keeps ``bound(p)`` below 2^52."""
    return max(p for p in range(12, most + 1) if bound(p) < 2**52)


def fitting_ratio(value: Fraction, most: int, above: int, below: int = 0) -> tuple[int, int]:
    return ratio(value, fitting(most, lambda p: max(above * ratio(value, p)[0], below * ratio(value, p)[1])))


@dataclass(frozen=True)
class Tensor:
    """Centred integers (int64) or real values (float32)."""

    data: Array
    integer: bool


class Evaluator:
    def __init__(self, model: onnx.ModelProto, graph: Json, parameters: Json) -> None:
        self.nodes = {node.name: node for node in model.graph.node}
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.graph, self.parameters = graph, parameters
        self.values: dict[str, Tensor] = {}
        # What no example changes, remembered from one to the next: entries of tables by level, weights; by group.
        self.entries: dict[str, dict[int, int]] = {}
        self.weights: dict[str, Array] = {}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Tensor]:
        """Every group output, and the inputs, by name."""
        self.values = {name: Tensor(np.asarray(value, np.float32), False) for name, value in feeds.items()}
        for group in self.graph["groups"]:
            KINDS[group["kind"]](self, group)
        return self.values

    # Parameters.

    def facts(self, name: str) -> tuple[Fraction, int, int]:
        """scale, lo, hi."""
        entry = self.parameters["tensors"][name]
        low, high = RANGE[entry["dtype"]]
        return Fraction(entry["scale"]), low - entry["zero_point"], high - entry["zero_point"]

    def bits(self, *names: str) -> int:
        return 24 if any(self.parameters["tensors"][name]["dtype"] == "int16" for name in names) else 12

    def reach(self, name: str) -> int:
        """The largest magnitude that the type holds."""
        _, low, high = self.facts(name)
        return max(-low, high)

    def x(self, name: str) -> Array:
        """Centred integers of a tensor, as object array."""
        value = self.values[name]
        if not value.integer:
            entry = self.parameters["tensors"][name]
            low, high = RANGE[entry["dtype"]]
            with np.errstate(over="ignore"):
                stored = np.rint(value.data / np.float32(entry["scale"])).astype(np.float64) + entry["zero_point"]
            value = Tensor(np.clip(stored, low, high).astype(np.int64) - entry["zero_point"], True)
            self.quantised = value
        return value.data

    def real(self, name: str) -> Array:
        value = self.values[name]
        if value.integer:
            return np.asarray(value.data.astype(np.float32) * np.float32(self.parameters["tensors"][name]["scale"]))
        return value.data

    def put(self, name: str, data: Array, limits: tuple[Fraction | None, Fraction | None] = (None, None)) -> None:
        """Clamp and store centred integers."""
        scale, low, high = self.facts(name)
        bottom = low if limits[0] is None else min(max(low, round(limits[0] / scale)), high)
        top = high if limits[1] is None else max(min(high, round(limits[1] / scale)), bottom)
        self.values[name] = Tensor(np.asarray(np.clip(data, bottom, top)).astype(np.int64), True)

    def members(self, group: Json) -> list[onnx.NodeProto]:
        return [self.nodes[name] for name in group["nodes"] if self.nodes[name].op_type != "Constant"]

    def limits(self, group: Json) -> tuple[Fraction | None, Fraction | None]:
        """Fused Relu or Clip of a group whose first node is neither."""
        node = self.members(group)[-1]
        if node.op_type == "Relu":
            return Fraction(0), None
        if node.op_type != "Clip":
            return None, None
        ends = [*(self.constants.get(name) for name in node.input[1:]), None, None]
        low, high = (None if end is None or not np.isfinite(end) else Fraction(float(end)) for end in ends[:2])
        return low, high


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    for entry in node.attribute:
        if entry.name == name:
            value = helper.get_attribute_value(entry)
            return value.decode() if isinstance(value, bytes) else value
    return default


# Weighted groups.


def pads_of(node: onnx.NodeProto, sizes: tuple[int, ...], kernel: list[int]) -> list[tuple[int, int]]:
    rank = len(kernel)
    strides, dilations = attribute(node, "strides", [1] * rank), attribute(node, "dilations", [1] * rank)
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + (length - 1) * dilation + 1 - size)
            halves = (total // 2, total - total // 2)
            found.append(halves if mode == "SAME_UPPER" else halves[::-1])
        return found
    pads = attribute(node, "pads", [0] * 2 * rank)
    return list(zip(pads[:rank], pads[rank:], strict=True))


def convolve(node: onnx.NodeProto, x: Array, w: Array) -> Array:
    """Direct convolution of int64 arrays, any rank, groups, strides, dilations, pads."""
    rank = w.ndim - 2
    strides, dilations = attribute(node, "strides", [1] * rank), attribute(node, "dilations", [1] * rank)
    groups = attribute(node, "group", 1)
    x = np.pad(x, [(0, 0), (0, 0), *pads_of(node, x.shape[2:], list(w.shape[2:]))])
    sizes = [
        (size - (length - 1) * dilation - 1) // stride + 1
        for size, length, dilation, stride in zip(x.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    per_in, per_out = x.shape[1] // groups, w.shape[0] // groups
    total = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    for tap in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(t * d, t * d + s * (size - 1) + 1, s)
            for t, d, s, size in zip(tap, dilations, strides, sizes, strict=True)
        )
        part = x[(slice(None), slice(None), *window)]
        for g in range(groups):
            rows = slice(g * per_out, (g + 1) * per_out)
            product = np.tensordot(w[(rows, slice(None), *tap)], part[:, g * per_in : (g + 1) * per_in], ([1], [1]))
            total[:, rows] += np.moveaxis(product, 0, 1)
    return total


def convolve_transposed(node: onnx.NodeProto, x: Array, w: Array, shape: tuple[int, ...]) -> Array:
    rank = w.ndim - 2
    strides, dilations = attribute(node, "strides", [1] * rank), attribute(node, "dilations", [1] * rank)
    groups, pads = attribute(node, "group", 1), attribute(node, "pads", [0] * 2 * rank)
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    full = [
        max((x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1, pads[i] + shape[2 + i])
        for i in range(rank)
    ]
    total = np.zeros((x.shape[0], per_out * groups, *full), np.int64)
    for tap in np.ndindex(*w.shape[2:]):
        where = tuple(
            slice(t * d, t * d + s * (size - 1) + 1, s)
            for t, d, s, size in zip(tap, dilations, strides, x.shape[2:], strict=True)
        )
        for g in range(groups):
            part = x[:, g * per_in : (g + 1) * per_in]
            product = np.tensordot(w[(slice(g * per_in, (g + 1) * per_in), slice(None), *tap)], part, ([0], [1]))
            total[(slice(None), slice(g * per_out, (g + 1) * per_out), *where)] += np.moveaxis(product, 0, 1)
    cut = tuple(slice(pads[i], pads[i] + shape[2 + i]) for i in range(rank))
    return total[(slice(None), slice(None), *cut)]


CODES = {"int4": (-8, 7), "int8": (-128, 127), "int16": (-32768, 32767)}


def integer_weights(values: Array, entry: Json, axis: int) -> Array:
    """(code - zero point) * multiplier; channels along ``axis``, input channels along 0 or 1, whichever is left."""
    rows = np.moveaxis(values, (axis, 1 - axis), (0, 1))
    channels, inputs = rows.shape[:2]
    size = entry["group_size"] or inputs
    low, high = CODES[entry["dtype"]]
    w = np.zeros(rows.shape, np.int64)
    for c in range(channels):
        for i in range(inputs):
            place = c * -(-inputs // size) + i // size
            multiplier = entry["multipliers"][place] if entry["multipliers"] else 1
            zero = entry["zero_points"][place] if entry["zero_points"] else 0
            codes = zero + np.rint(rows[c, i] / (entry["scales"][c] * multiplier)).astype(np.int64)
            assert 1 <= multiplier <= 16
            assert (low if entry["zero_points"] else -high) <= codes.min() <= codes.max() <= high
            w[c, i] = (codes - zero) * multiplier
    return np.moveaxis(w, (0, 1), (axis, 1 - axis))


def weighted(e: Evaluator, group: Json) -> None:
    if e.parameters["groups"][group["name"]]["precision"] not in ("int8", "int16"):
        real_group(e, group)
        return
    node, *rest = e.members(group)
    source, target = node.input[0], group["outputs"][0]
    entry = e.parameters["weights"][group["name"]]
    axis = {"Conv": 0, "ConvTranspose": 1}.get(node.op_type, 0 if attribute(node, "transB", 0) else 1)
    if group["name"] not in e.weights:
        e.weights[group["name"]] = integer_weights(e.constants[node.input[1]].astype(np.float64), entry, axis)
    w = e.weights[group["name"]]
    repeat = attribute(node, "group", 1) if node.op_type == "ConvTranspose" else 1
    steps = np.tile(np.array(entry["scales"], np.float64), repeat)
    divisors = np.tile(np.array(entry["divisors"], np.int64), repeat)
    shifts = np.tile(np.array(entry["shifts"] or [0] * len(entry["divisors"]), np.int64), repeat)
    scales = e.parameters["tensors"][source]["scale"] * steps
    bias = np.zeros(len(scales))
    if len(node.input) > 2 and node.input[2]:
        bias = bias + e.constants[node.input[2]].astype(np.float64).reshape(-1)
    for add in rest:
        if add.op_type == "Add":
            bias = bias + next(e.constants[n] for n in add.input if n in e.constants).astype(np.float64).reshape(-1)
    b = np.rint(bias / scales).astype(np.int64)
    x = e.x(source)
    out_shape = tuple(e.graph["tensors"][target]["shape"])
    if node.op_type == "Conv":
        acc = convolve(node, x, w)
    elif node.op_type == "ConvTranspose":
        acc = convolve_transposed(node, x, w, out_shape)
    else:
        acc = x @ (w.T if axis == 0 else w)
    channel = [1] * acc.ndim
    channel[1 if node.op_type in ("Conv", "ConvTranspose") else -1] = -1
    acc = acc + b.reshape(channel)
    if e.parameters["groups"][group["name"]]["accumulator_output"]:
        leave(e, group, acc, scales.astype(np.float32).reshape(channel))
    else:
        assert all(d % 2 == 1 and 1 <= d < 2**24 for d in divisors)
        assert all(k == 0 or d < 2**14 for d, k in zip(divisors, shifts, strict=True))
        scaled = acc.astype(object) * 2 ** shifts.astype(object).reshape(channel)
        e.put(target, rhe(scaled, divisors.reshape(channel)), e.limits(group))


def leave(e: Evaluator, group: Json, acc: Array, scales: Array) -> None:
    low, high = e.limits(group)
    if low == 0 and high is None:
        acc, low = np.maximum(acc, 0), None
    real = acc.astype(np.float32) * scales
    if low is not None or high is not None:
        real = np.clip(real, -np.inf if low is None else float(low), np.inf if high is None else float(high))
    e.values[group["outputs"][0]] = Tensor(real.astype(np.float32), False)


def matmul(e: Evaluator, group: Json) -> None:
    a, b = e.members(group)[0].input
    (sa, *_), (sb, *_) = e.facts(a), e.facts(b)
    acc = np.matmul(e.x(a), e.x(b))
    if e.parameters["groups"][group["name"]]["accumulator_output"]:
        leave(e, group, acc, np.array(float(sa * sb), np.float32))
        return
    target = group["outputs"][0]
    most = e.values[a].data.shape[-1] * e.reach(a) * e.reach(b)
    m, n = fitting_ratio(sa * sb / e.facts(target)[0], e.bits(a, b, target), most)
    e.put(target, rhe(acc.astype(object) * m, n), e.limits(group))


# Elementwise.


def add(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    scale = e.facts(target)[0]
    computed = [name for name in node.input if name not in e.constants]

    def factor(name: str, p: int) -> Array:
        if name in e.constants:
            return np.asarray(np.rint(e.constants[name].astype(np.float64) * ((2**p - 1) / float(scale))))
        return np.array(round((2**p - 1) * e.facts(name)[0] / scale), object)

    def bound(p: int) -> int:
        return sum(
            (e.reach(name) if name in computed else 1) * int(np.max(np.abs(factor(name, p)))) for name in node.input
        )

    p = fitting(e.bits(*computed, target), bound)
    total: Any = 0
    for name, sign in zip(node.input, (1, -1 if node.op_type == "Sub" else 1), strict=True):
        term = factor(name, p).astype(np.int64).astype(object)
        total = total + sign * (term * e.x(name) if name in computed else term)
    e.put(target, rhe(total, 2**p - 1), e.limits(group))


def multiply(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    if any(name in e.constants for name in node.input):
        place = 0 if node.input[0] in e.constants else 1
        by_constant(e, group, node.input[1 - place], e.constants[node.input[place]].astype(np.float64))
        return
    a, b = node.input
    value = e.facts(a)[0] * e.facts(b)[0] / e.facts(target)[0]
    m, n = fitting_ratio(value, e.bits(a, b, target), e.reach(a) * e.reach(b))
    e.put(target, rhe(e.x(a).astype(object) * e.x(b) * m, n), e.limits(group))


def divide(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    a, b = node.input
    if b in e.constants:
        by_constant(e, group, a, 1.0 / e.constants[b].astype(np.float64))
        return
    value = e.facts(a)[0] / (e.facts(b)[0] * e.facts(target)[0])
    m, n = fitting_ratio(value, e.bits(a, b, target), e.reach(a), e.reach(b))
    below = np.where(e.x(b) == 0, 1, e.x(b)).astype(object) * n
    above = e.x(a).astype(object) * m
    sign = np.where(below < 0, -1, 1)
    e.put(target, rhe(above * sign, below * sign), e.limits(group))


def by_constant(e: Evaluator, group: Json, name: str, constant: Array) -> None:
    target = group["outputs"][0]
    varied = len({abs(float(value)) for value in constant.reshape(-1)}) > 1

    def factors(p: int) -> Array:
        return np.asarray(np.rint(float(e.facts(name)[0]) * (2**p - 1) / float(e.facts(target)[0]) * constant))

    p = fitting(24 if varied else e.bits(name, target), lambda p: e.reach(name) * int(np.abs(factors(p)).max()))
    d, k = 2**p - 1, factors(p)
    e.put(target, rhe(e.x(name).astype(object) * k.astype(np.int64), d), e.limits(group))


# Functions.


def _given(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


class Call(NamedTuple):
    """One ONNX operator applied: f: mpmath's context; o: the operands."""

    f: Any
    node: onnx.NodeProto
    o: list[Any]

    @property
    def x(self) -> Any:
        """The first operand."""
        return self.o[0]

    def stated(self, name: str, default: float) -> Any:
        """An attribute as a number of the context."""
        return self.f.mpf(float(attribute(self.node, name, default)))


def _hard_sigmoid(c: Call) -> Any:
    line = c.stated("alpha", float(np.float32(0.2))) * c.x + c.stated("beta", 0.5)
    return max(c.f.mpf(0), min(c.f.mpf(1), line))


def _gelu(c: Call) -> Any:
    f, x = c.f, c.x
    if attribute(c.node, "approximate", "none") == "tanh":
        return x / 2 * (1 + f.tanh(f.sqrt(2 / f.pi) * (x + f.mpf("0.044715") * x**3)))
    return x * f.ncdf(x)


def _celu(c: Call) -> Any:
    alpha = c.stated("alpha", 1.0)
    return max(c.x, c.f.mpf(0)) + min(c.f.mpf(0), alpha * c.f.expm1(c.x / alpha))


def _selu(c: Call) -> Any:
    inner = c.x if c.x > 0 else c.stated("alpha", 1.67326319217681884765625) * c.f.expm1(c.x)
    return c.stated("gamma", 1.05070102214813232421875) * inner


def _shrink(c: Call) -> Any:
    edge, bias = c.stated("lambd", 0.5), c.stated("bias", 0.0)
    return c.x + bias if c.x < -edge else c.x - bias if c.x > edge else 0 * c.x


FUNCTIONS: dict[str, Callable[[Call], Any]] = {
    "Sigmoid": lambda c: 1 / (1 + c.f.exp(-c.x)),
    "Tanh": lambda c: c.f.tanh(c.x),
    "Exp": lambda c: c.f.exp(c.x),
    "Log": lambda c: c.f.log(c.x) if c.x > 0 else c.f.mpf("-inf") if c.x == 0 else c.f.nan,
    "Erf": lambda c: c.f.erf(c.x),
    "Sqrt": lambda c: c.f.sqrt(c.x) if c.x >= 0 else c.f.nan,
    "Reciprocal": lambda c: 1 / c.x if c.x else c.f.inf,
    "Softplus": lambda c: c.f.log1p(c.f.exp(c.x)),
    "Gelu": _gelu,
    "Elu": lambda c: c.x if c.x > 0 else c.stated("alpha", 1.0) * c.f.expm1(c.x),
    "Relu": lambda c: max(c.x, c.f.mpf(0)),
    "LeakyRelu": lambda c: c.x * c.stated("alpha", float(np.float32(0.01))) if c.x < 0 else c.x,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda c: c.x * max(c.f.mpf(0), min(c.f.mpf(1), c.x / 6 + c.f.mpf(1) / 2)),
    "Clip": lambda c: min([max([c.x, *_given(c.o[1:2])]), *_given(c.o[2:3])]),
    "Neg": lambda c: -c.x,
    "Abs": lambda c: abs(c.x),
    "Mul": lambda c: c.x * c.o[1],
    "Add": lambda c: c.x + c.o[1],
    "Sub": lambda c: c.x - c.o[1],
    "Div": lambda c: c.x / c.o[1],
    "Pow": lambda c: c.x ** c.o[1] if c.x or c.o[1] >= 0 else c.f.inf,
    "Sin": lambda c: c.f.sin(c.x),
    "Cos": lambda c: c.f.cos(c.x),
    "Mish": lambda c: c.x * c.f.tanh(c.f.log1p(c.f.exp(c.x))),
    "Softsign": lambda c: c.x / (1 + abs(c.x)),
    "Atan": lambda c: c.f.atan(c.x),
    "Asin": lambda c: c.f.asin(c.x) if abs(c.x) <= 1 else c.f.nan,
    "Acos": lambda c: c.f.acos(c.x) if abs(c.x) <= 1 else c.f.nan,
    "Tan": lambda c: c.f.tan(c.x),
    "Sinh": lambda c: c.f.sinh(c.x),
    "Cosh": lambda c: c.f.cosh(c.x),
    "Asinh": lambda c: c.f.asinh(c.x),
    "Celu": _celu,
    "Selu": _selu,
    "PRelu": lambda c: c.x * c.o[1] if c.x < 0 else c.x,
    "ThresholdedRelu": lambda c: c.x if c.x > c.stated("alpha", 1.0) else c.f.mpf(0),
    "Shrink": _shrink,
    "Ceil": lambda c: c.f.ceil(c.x),
    "Floor": lambda c: c.f.floor(c.x),
    "Round": lambda c: c.f.nint(c.x),
    "Sign": lambda c: c.f.sign(c.x),
    "Acosh": lambda c: c.f.acosh(c.x) if c.x >= 1 else c.f.nan,
    "Atanh": lambda c: c.f.atanh(c.x) if abs(c.x) < 1 else c.f.mpf("inf") * c.x if abs(c.x) == 1 else c.f.nan,
}
# Compositions of these, of moderate values, are right to a few of the last bits in float64.
TAME = {"Sigmoid", "Tanh", "Erf", "Gelu", "Relu", "HardSigmoid", "HardSwish", "Clip", "Mul"}


def mp_function(node: onnx.NodeProto, operands: list[Any], context: Any = mpmath.mp) -> Any:
    """One ONNX operator in mpmath: ``mpmath.mp``, or in float64: ``mpmath.fp``."""
    return FUNCTIONS[node.op_type](Call(context, node, operands))


def table(e: Evaluator, group: Json) -> None:
    source, target = group["inputs"][0], group["outputs"][0]
    x = e.x(source)
    levels, places = np.unique(x, return_inverse=True)
    known = e.entries.setdefault(group["name"], {})
    for level in levels.tolist():
        if level not in known:
            known[level] = table_entry(e, group, level)
    results = [known[level] for level in levels.tolist()]
    e.put(target, np.array(results, object)[places.ravel()].reshape(x.shape))


def table_entry(e: Evaluator, group: Json, level: int) -> int:
    """rhe(function / scale) of one level: by float64 where no tie is near, else with 45 digits."""
    step, out = e.facts(group["inputs"][0])[0], e.facts(group["outputs"][0])
    if all(node.op_type in TAME for node in e.members(group)):
        sure = surely_rounded(chain(e, group, mpmath.fp, level * float(step)), float(out[0]))
        if sure is not None:
            return min(max(sure, out[1]), out[2])
    with mpmath.workdps(45):
        return rounded(chain(e, group, mpmath.mp, mpmath.mpf(step.numerator) / step.denominator * level)[-1], out)


def chain(e: Evaluator, group: Json, context: Any, value: Any) -> list[Any]:
    """The value of the group's input and of each node, in order; not a number where one exceeds float64."""
    known: dict[str, Any] = {group["inputs"][0]: value}
    for node in e.members(group):
        operands = [
            None if not name else known[name] if name in known else context.mpf(float(e.constants[name].item()))
            for name in node.input
        ]
        try:
            known[node.output[0]] = mp_function(node, operands, context)
        except OverflowError:
            return [*known.values(), context.nan]
    return list(known.values())


def surely_rounded(values: list[float], scale: float) -> int | None:
    """The integer nearest to the last value / scale where it is right though every value was 2^-40 off; else None."""
    if not all(math.isfinite(value) for value in values):
        return None
    quotient, largest = values[-1] / scale, max(abs(value) for value in values)
    nearest = math.floor(quotient + 0.5)
    safe = 0.5 - abs(quotient - nearest) > 2.0**-40 * ((1 + largest) ** 2 / scale + abs(quotient))
    return nearest if safe else None


def rounded(value: Any, out: tuple[Fraction, int, int]) -> int:
    """rhe(value / scale), saturated, from a 45-digit value; within 1e-40 of a tie is the tie."""
    scale, low, high = out
    if mpmath.isnan(value):
        return 0
    quotient = value * scale.denominator / scale.numerator
    if quotient > high + 1 or quotient < low - 1:
        return high if quotient > 0 else low
    twice = mpmath.nint(quotient * 2)
    if abs(quotient * 2 - twice) < mpmath.mpf("2e-40"):
        return round(Fraction(int(twice), 2))
    return int(mpmath.nint(quotient))


# Movement, pooling.


def reference(node: onnx.NodeProto, inputs: Mapping[str, Array]) -> list[Array]:
    """onnx's own reference implementation of one node, data in float64."""
    made = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", made, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, dict(inputs))]


def max_pool(node: onnx.NodeProto, data: Array) -> Array:
    """Largest element under each window, padding left out; onnx's own evaluator pads some shapes wrongly."""
    spatial = data.ndim - 2
    kernel = list(attribute(node, "kernel_shape", []))
    strides, dilations = (list(attribute(node, name, [1] * spatial)) for name in ("strides", "dilations"))
    pads = list(attribute(node, "pads", [0] * 2 * spatial))
    assert not attribute(node, "ceil_mode", 0)  # optimize says the padding instead
    sides = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)]
    padded = np.pad(data, sides, constant_values=-np.inf)
    counts = [
        (padded.shape[2 + axis] - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
        for axis in range(spatial)
    ]
    result = np.full((*data.shape[:2], *counts), -np.inf)
    for offset in np.ndindex(*kernel):
        cut = tuple(
            slice(
                place * dilations[axis], place * dilations[axis] + (counts[axis] - 1) * strides[axis] + 1, strides[axis]
            )
            for axis, place in enumerate(offset)
        )
        result = np.maximum(result, padded[(slice(None), slice(None), *cut)])
    return result


def movement(e: Evaluator, group: Json) -> None:
    known: dict[str, Array] = {name: e.x(name).astype(np.float64) for name in group["inputs"]}
    for node in e.members(group):
        inputs = {name: known[name] if name in known else e.constants[name] for name in node.input if name}
        if node.op_type == "Pad" and len(node.input) > 2 and node.input[2]:
            inputs[node.input[2]] = inputs[node.input[2]].astype(np.float64)
        if node.op_type == "Concat":
            scale, low, high = e.facts(group["outputs"][0])
            for name in node.input:
                if name in e.constants:
                    inputs[name] = np.clip(np.rint(e.constants[name].astype(np.float64) / float(scale)), low, high)
        if node.op_type == "GlobalMaxPool":  # onnx's evaluator drops a dimension of three
            data = inputs[node.input[0]]
            known[node.output[0]] = data.max(axis=tuple(range(2, data.ndim)), keepdims=True)
            continue
        if node.op_type == "MaxPool" and attribute(node, "auto_pad", b"NOTSET") in (b"NOTSET", "NOTSET"):
            known[node.output[0]] = max_pool(node, inputs[node.input[0]])
            continue
        known.update(zip([name for name in node.output if name], reference(node, inputs), strict=True))
    for name in group["outputs"]:
        e.put(name, known[name])


def reduction_axes(e: Evaluator, node: onnx.NodeProto, rank: int) -> tuple[tuple[int, ...], bool]:
    if node.op_type == "GlobalAveragePool":
        return tuple(range(2, rank)), True
    axes = e.constants[node.input[1]].tolist() if len(node.input) > 1 else range(rank)
    return tuple(axis % rank for axis in axes), bool(attribute(node, "keepdims", 1))


def average(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    x = e.x(node.input[0])
    if node.op_type == "AveragePool":
        kernel = attribute(node, "kernel_shape", [])
        ones = np.ones((x.shape[1], 1, *kernel), np.int64)
        depthwise = onnx.NodeProto()
        depthwise.CopyFrom(node)
        depthwise.attribute.append(helper.make_attribute("group", x.shape[1]))
        total, count = convolve(depthwise, x, ones), convolve(depthwise, np.ones_like(x), ones)
        window = math.prod(kernel)
        if attribute(node, "count_include_pad", 0):
            count = np.full_like(count, math.prod(kernel))
    else:
        axes, keep = reduction_axes(e, node, x.ndim)
        total = x.sum(axis=axes, keepdims=keep)
        window = math.prod(x.shape[axis] for axis in axes)
        count = np.array(window)
    value = e.facts(node.input[0])[0] / e.facts(target)[0]
    m, n = fitting_ratio(value, e.bits(node.input[0], target), window * e.reach(node.input[0]))
    e.put(target, rhe(total.astype(object) * m, count.astype(object) * n), e.limits(group))


def reduce(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    x = e.x(node.input[0])
    axes, keep = reduction_axes(e, node, x.ndim)
    functions: dict[str, Callable[..., Any]] = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}
    value = np.asarray(functions[node.op_type](x, axis=axes, keepdims=keep))
    summed = math.prod(x.shape[axis] for axis in axes) if node.op_type == "ReduceSum" else 1
    scales = e.facts(node.input[0])[0] / e.facts(target)[0]
    m, n = fitting_ratio(scales, e.bits(node.input[0], target), summed * e.reach(node.input[0]))
    e.put(target, rhe(value.astype(object) * m, n))


def resize(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    inputs = {name: e.constants[name] for name in node.input[1:] if name}
    inputs[node.input[0]] = e.x(node.input[0]).astype(np.float64)
    if len(node.input) > 2 and node.input[2]:  # 1.3 in float32 is meant as 13 / 10
        meant = [float(Fraction(float(scale)).limit_denominator(2**12)) for scale in inputs[node.input[2]]]
        inputs[node.input[2]] = np.array(meant)
    (values,) = reference(node, {name: inputs[name] for name in node.input if name})
    factors = [new / old for old, new in zip(inputs[node.input[0]].shape, values.shape, strict=True)]
    if _dyadic(node, factors):
        parts = 2 ** sum(1 + round(math.log2(max(factor, 1))) for factor in factors if factor != 1)
    else:
        parts = math.prod(_denominator(node, inputs, axis) for axis, factor in enumerate(factors) if factor != 1)
    scales = e.facts(node.input[0])[0] / e.facts(target)[0]
    m, n = fitting_ratio(scales, e.bits(node.input[0], target), parts * e.reach(node.input[0]))
    fine = np.rint(values * parts)
    assert np.allclose(fine, values * parts, rtol=0, atol=1e-3)
    e.put(target, rhe(fine.astype(np.int64).astype(object) * m, n * parts))


def _dyadic(node: onnx.NodeProto, factors: list[float]) -> bool:
    mode = attribute(node, "coordinate_transformation_mode", "half_pixel")
    powers = all(math.log2(factor) == round(math.log2(factor)) for factor in factors)
    return powers and mode in ("half_pixel", "asymmetric", "pytorch_half_pixel")


def _denominator(node: onnx.NodeProto, inputs: Mapping[str, Array], axis: int) -> int:
    """Of the weights of one axis, which the reference shows where all elements at one place are 1 and all others 0."""
    shape = inputs[node.input[0]].shape
    found = 1
    for place in range(shape[axis]):
        impulse = np.zeros(shape)
        impulse[(slice(None),) * axis + (place,)] = 1
        (weights,) = reference(node, {name: {**inputs, node.input[0]: impulse}[name] for name in node.input if name})
        fractions = (Fraction(float(weight)).limit_denominator(2**12) for weight in np.unique(weights))
        found = math.lcm(found, *(fraction.denominator for fraction in fractions))
    return found


# Normalisation.


def softmax(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    x, axis = e.x(node.input[0]), attribute(node, "axis", -1)
    step, scale = e.facts(node.input[0])[0], e.facts(target)[0]
    distance = x.max(axis=axis, keepdims=True) - x
    levels, places = np.unique(distance, return_inverse=True)
    with mpmath.workdps(45):
        powers = [
            int(mpmath.nint(65535 * mpmath.exp(-(mpmath.mpf(step.numerator) / step.denominator) * int(d))))
            for d in levels
        ]
    big = np.array(powers, object)[places].reshape(x.shape)
    m, n = fitting_ratio(1 / scale, e.bits(node.input[0], target), 65535, 65535 * x.shape[axis])
    e.put(target, rhe(big * m, np.asarray(big.sum(axis=axis, keepdims=True)) * n))


def layer_norm(e: Evaluator, group: Json) -> None:
    node, target = e.members(group)[0], group["outputs"][0]
    x = e.x(node.input[0]).astype(object)
    step, low, high = e.facts(node.input[0])
    out = float(e.facts(target)[0])
    axes = tuple(range(attribute(node, "axis", -1) % x.ndim, x.ndim))
    n = math.prod(x.shape[axis] for axis in axes)
    reach, s = n * (high - low), 0
    while n * (reach // 2**s) ** 2 >= 2**50:
        s += 1
    reach = reach // 2**s + (s > 0)
    eps = max(1, round(Fraction(float(attribute(node, "epsilon", 1e-5))) * n**3 / (step**2 * 4**s)))
    worst = n * reach**2 + eps
    j = max(j for j in range(13) if j == 0 or worst * 4**j < 2**52)
    gamma = e.constants[node.input[1]].astype(np.float64) * math.sqrt(n) / out
    beta = e.constants[node.input[2]].astype(np.float64) / out if len(node.input) > 2 else np.zeros(1)
    top = math.isqrt(worst * 4**j)

    def fits(k: int) -> bool:
        g, b = int(np.abs(np.rint(gamma * 2.0**k)).max()), int(np.abs(np.rint(beta * 2.0**k)).max())
        return bool(max(reach * 2**j * g + top * b, top * 2**k, worst * 4**j) < 2**52)

    k = max(k for k in range(13) if fits(k))
    g, b = (np.rint(values * 2.0**k).astype(np.int64).astype(object) for values in (gamma, beta))
    c = (n * x - x.sum(axis=axes, keepdims=True)) // 2**s
    v = (c * c).sum(axis=axes, keepdims=True) + eps
    r = np.vectorize(lambda value: math.isqrt(value * 4**j), otypes=[object])(v)
    e.put(target, rhe(c * g * 2**j + b * r, r * 2**k))


def real_group(e: Evaluator, group: Json) -> None:
    raise NotImplementedError(f"{group['name']}: float groups are compared by tolerance, not here")


KINDS: dict[str, Callable[[Evaluator, Json], None]] = {
    "conv": weighted,
    "conv_transpose": weighted,
    "linear": weighted,
    "matmul": matmul,
    "table": table,
    "add": add,
    "multiply": multiply,
    "divide": divide,
    "concat": movement,
    "movement": movement,
    "average": average,
    "resize": resize,
    "reduce": reduce,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "float": real_group,
}
