"""Room ``fixedpoint``: Softmax and LayerNormalization in integers. One group enters, its output tensor leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
import onnx
from onnx import TensorProto

from npubake.fixedpoint.arithmetic import (
    FLOAT32_EXACT,
    FLOAT64_ROUNDED,
    PRECISION_8,
    Array,
    precision_of,
    round_half_even,
)
from npubake.fixedpoint.kernels.bounds import bounded_ratio, within
from npubake.fixedpoint.kernels.lookup import look_up
from npubake.fixedpoint.lowered import TableFact
from npubake.fixedpoint.lowering import Lowering, NoIntegerKernelError, take_apart
from npubake.fixedpoint.requantise import round_and_clamp
from npubake.fixedpoint.tables import EXP_STEPS, exponential_table
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import LIMITS, limits

ROOT_BITS = 12  # the square root is taken of 4^j * v with j <= 12: relative error of the root below 2^-12
SQUARES_LIMIT = 2**50  # of the sum of squares, which leaves two bits for epsilon and the scaling


def lower_softmax(lowering: Lowering, group: FusionGroup) -> None:
    """E = table[max - q], q_out = clamp(zp + rhe(E * m / (n * sum E))), m / n for 1 / so."""
    node = take_apart(lowering, group, ("Softmax",)).anchor
    source, target, writer = node.input[0], group.outputs[0], lowering.writer
    facts, out, shape = lowering.forms.parameters(source), lowering.forms.parameters(target), lowering.shape(target)
    axis = attribute(node, "axis", -1) % len(shape)
    axes = writer.constant(np.array([axis], np.int64), f"axes_{axis}")
    lowest, highest = LIMITS[facts.dtype]
    entries = exponential_table(facts.scale, highest - lowest + 1)
    values = lowering.forms.centred(source)
    top = writer.node("ReduceMax", [values, axes], target, keepdims=1)
    distance = writer.node("Cast", [writer.node("Sub", [top, values], target)], target, to=TensorProto.INT32)
    powers = look_up(lowering, target, entries.astype(np.float64), distance, (f"{target}/powers", shape))
    total = writer.node("ReduceSum", [powers, axes], target, keepdims=1)
    most = EXP_STEPS * shape[axis]
    multiplier, divisor = bounded_ratio(1 / Fraction(out.scale), precision_of(facts, out), EXP_STEPS, most)
    bound = max(EXP_STEPS * multiplier, most * divisor)
    above = writer.node("Mul", [powers, writer.constant(np.float64(multiplier), f"{target}/multiplier")], target)
    below = writer.node("Mul", [total, writer.constant(np.float64(divisor), f"{target}/divisor")], target)
    round_and_clamp(lowering, target, writer.node("Div", [above, below], target))
    exact = (
        f"|E * m|, n * sum E <= {bound} < 2^52: exact sums; the float64 quotient rounds (half to even) as the exact one"
    )
    lowering.certify(group, f"exp table of {len(entries)} entries, float64 division", bound, exact)
    lowering.tables.append(
        TableFact(
            group=group.name,
            function="exp",
            entries=len(entries),
            max_error=0.5 / EXP_STEPS,
            max_error_lsb=0.5,
            saturated=0,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """Constants of an integer LayerNormalization: n, s, e, j, K, G, B of docs/arithmetic.md, and the bound."""

    count: int
    shift: int
    epsilon: int
    root: int
    fraction: int
    gain: Array
    offset: Array
    bound: int


def lower_layer_norm(lowering: Lowering, group: FusionGroup) -> None:
    """c = floor((n x - sum x) / 2^s), r = isqrt((sum c^2 + e) 4^j), x_out = clamp(rhe((c G 2^j + B r) / (r 2^K)))."""
    node = take_apart(lowering, group, ("LayerNormalization",)).anchor
    if len([name for name in node.output if name]) > 1:
        raise NoIntegerKernelError("LayerNormalization with mean or deviation outputs")
    source, target, writer = node.input[0], group.outputs[0], lowering.writer
    shape = lowering.shape(source)
    first = attribute(node, "axis", -1) % len(shape)
    axes = writer.constant(np.arange(first, len(shape), dtype=np.int64), f"axes_from_{first}")
    numbers = normalisation_constants(lowering, group, node, prod(shape[first:]))
    deviation = _deviation(lowering, group, source, axes, numbers)
    square = writer.node("Mul", [deviation, deviation], target)
    total = writer.node("ReduceSum", [square, axes], target, keepdims=1)
    total = writer.node("Add", [total, _number(lowering, target, numbers.epsilon)], target)
    total = writer.node("Mul", [total, _number(lowering, target, 4**numbers.root)], target)
    root = writer.node("Floor", [writer.node("Sqrt", [total], target)], target)
    gain = writer.constant(numbers.gain * 2.0**numbers.root, f"{target}/gain")
    above = writer.node("Mul", [deviation, gain], target)
    if np.any(numbers.offset):
        shifted = writer.node("Mul", [root, writer.constant(numbers.offset, f"{target}/offset")], target)
        above = writer.node("Add", [above, shifted], target)
    below = writer.node("Mul", [root, _number(lowering, target, 2**numbers.fraction)], target)
    round_and_clamp(lowering, target, writer.node("Div", [above, below], target))
    exact = (
        f"n = {numbers.count}, s = {numbers.shift}, e = {numbers.epsilon}, j = {numbers.root}, K = {numbers.fraction}: "
        f"squares, numerator and denominator <= {numbers.bound} < 2^52: sums, floor(sqrt) and the quotient are exact"
    )
    lowering.certify(group, "LayerNormalization float64 on integers", numbers.bound, exact)


def normalisation_constants(lowering: Lowering, group: FusionGroup, node: onnx.NodeProto, count: int) -> Normalisation:
    """The constants by the rules of docs/arithmetic.md."""
    facts, out = lowering.forms.parameters(node.input[0]), lowering.forms.parameters(group.outputs[0])
    low, high = limits(facts)
    reach = count * (high - low)
    shift = 0
    while count * (reach >> shift) ** 2 >= SQUARES_LIMIT:
        shift += 1
    reach = (reach >> shift) + (1 if shift else 0)
    variance = Fraction(float(attribute(node, "epsilon", 1e-5))) * count**3 / (Fraction(facts.scale) ** 2 * 4**shift)
    epsilon = max(1, round_half_even(variance))
    squares = count * reach**2 + epsilon
    within(squares, FLOAT64_ROUNDED, "float64 sum of squares")
    root = 0
    while root < ROOT_BITS and squares * 4 ** (root + 1) < FLOAT64_ROUNDED:
        root += 1
    gain = _parameter(lowering, node, 1, 1.0) * math.sqrt(count) / out.scale
    offset = _parameter(lowering, node, 2, 0.0) / out.scale
    top_root = math.isqrt(squares * 4**root)
    for fraction in range(PRECISION_8, -1, -1):
        gains, offsets = np.rint(gain * 2.0**fraction), np.rint(offset * 2.0**fraction)
        above = reach * 2**root * int(np.abs(gains).max()) + top_root * int(np.abs(offsets).max())
        bound = max(above, top_root * 2**fraction, squares * 4**root)
        if bound < FLOAT64_ROUNDED:
            return Normalisation(
                count=count,
                shift=shift,
                epsilon=epsilon,
                root=root,
                fraction=fraction,
                gain=gains,
                offset=offsets,
                bound=bound,
            )
    raise NoIntegerKernelError(f"LayerNormalization over {count} elements: gain {np.abs(gain).max():.3g} is too large")


def _deviation(lowering: Lowering, group: FusionGroup, source: str, axes: str, numbers: Normalisation) -> str:
    """floor((n q - sum q) / 2^s) as float64."""
    target, writer = group.outputs[0], lowering.writer
    values: str = lowering.forms.centred(source)
    dtype: type[np.float32] | type[np.float64] = np.float32
    low, high = limits(lowering.forms.parameters(source))
    if 2 * numbers.count * max(-low, high) >= FLOAT32_EXACT:
        values, dtype = writer.node("Cast", [values], target, to=TensorProto.DOUBLE), np.float64
    total = writer.node("ReduceSum", [values, axes], target, keepdims=1)
    scaled = writer.node("Mul", [values, writer.constant(dtype(numbers.count), f"{target}/count")], target)
    deviation = writer.node("Sub", [scaled, total], target)
    if dtype is np.float32:
        deviation = writer.node("Cast", [deviation], target, to=TensorProto.DOUBLE)
    if numbers.shift:
        deviation = writer.node(
            "Mul", [deviation, writer.constant(np.float64(2.0**-numbers.shift), f"{target}/shift")], target
        )
        deviation = writer.node("Floor", [deviation], target)
    return deviation


def _number(lowering: Lowering, target: str, value: int) -> str:
    return lowering.writer.constant(np.float64(value), f"{target}/number")


def _parameter(lowering: Lowering, node: onnx.NodeProto, position: int, default: float) -> Array:
    if len(node.input) <= position or not node.input[position]:
        return np.array(default)
    value = lowering.constant(node.input[position])
    if value is None:
        raise NoIntegerKernelError("LayerNormalization with computed scale or bias")
    return value.astype(np.float64)
