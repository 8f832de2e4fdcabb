"""Room ``fixedpoint``: Add, Sub, Mul, Div of two tensors, one maybe constant. One group enters, integers leave."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from onnx import TensorProto

from npubake.fixedpoint.arithmetic import (
    FLOAT32_EXACT,
    PRECISION_16,
    Array,
    precision_of,
    round_half_even,
)
from npubake.fixedpoint.kernels.bounds import bounded_precision, bounded_ratio
from npubake.fixedpoint.lowering import Fused, Lowering, NoIntegerKernelError, take_apart
from npubake.fixedpoint.requantise import Accumulator, Scaling, requantise, round_and_clamp
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits

_Term = tuple[str | None, Array]  # (tensor, factor), or (None, constant)


def lower_add(lowering: Lowering, group: FusionGroup) -> None:
    """(a * ka + b * kb) / D with k = rhe(D * s / so), D = 2^p - 1; a constant b is rint(b * (D / so)) at once."""
    fused = take_apart(lowering, group, ("Add", "Sub"))
    signs = (1, -1 if fused.anchor.op_type == "Sub" else 1)
    target, out = group.outputs[0], lowering.forms.parameters(group.outputs[0])
    signed = list(zip(fused.anchor.input, signs, strict=True))
    facts = [lowering.forms.parameters(name) for name, _ in signed if lowering.constant(name) is None]

    def at(precision: int) -> tuple[list[_Term], int]:
        return _addends(lowering, signed, Fraction(out.scale), 2**precision - 1)

    precision = bounded_precision(precision_of(*facts, out), lambda bits: at(bits)[1])
    (terms, bound), divisor = at(precision), 2**precision - 1
    wide = bound >= FLOAT32_EXACT
    parts = [_term(lowering, target, name, values, wide) for name, values in terms]
    total = lowering.writer.node("Add", parts, target)
    _finish(
        lowering, group, fused, Accumulator(name=total, dtype="float64" if wide else "float32", bound=bound), divisor
    )


def lower_multiply(lowering: Lowering, group: FusionGroup) -> None:
    """Two tensors: (a * b) * m / D. A constant c: a * rint(sa * D / so * c) / D, D = 2^p - 1."""
    fused = take_apart(lowering, group, ("Mul",))
    names = list(fused.anchor.input)
    constants = [lowering.constant(name) for name in names]
    if any(value is not None for value in constants):
        position = 0 if constants[0] is not None else 1
        constant = constants[position]
        assert constant is not None
        _by_constant(lowering, group, fused, names[1 - position], constant.astype(np.float64))
        return
    facts = [lowering.forms.parameters(name) for name in names]
    out = lowering.forms.parameters(group.outputs[0])
    ratio = Fraction(facts[0].scale) * Fraction(facts[1].scale) / Fraction(out.scale)
    bound = max(map(abs, limits(facts[0]))) * max(map(abs, limits(facts[1])))
    multiplier, divisor = bounded_ratio(ratio, precision_of(*facts, out), bound)
    wide = bound * multiplier >= FLOAT32_EXACT
    operands = [_widened(lowering, group.outputs[0], name, wide) for name in names]
    product = lowering.writer.node("Mul", operands, group.outputs[0])
    accumulator = Accumulator(name=product, dtype="float64" if wide else "float32", bound=bound)
    _finish(lowering, group, fused, accumulator, divisor, multiplier)


def lower_divide(lowering: Lowering, group: FusionGroup) -> None:
    """By a constant: as a product. By a tensor: rhe(a * m / (b * n)), m / n for sa / (sb * so); b = 0 counts as 1."""
    fused = take_apart(lowering, group, ("Div",))
    first, second = fused.anchor.input
    constant = lowering.constant(second)
    if constant is not None:
        _by_constant(lowering, group, fused, first, 1.0 / constant.astype(np.float64))
        return
    if lowering.constant(first) is not None:
        raise NoIntegerKernelError("a constant divided by a tensor with other operands fused")
    writer, target = lowering.writer, group.outputs[0]
    facts, out = [lowering.forms.parameters(name) for name in (first, second)], lowering.forms.parameters(target)
    ratio = Fraction(facts[0].scale) / (Fraction(facts[1].scale) * Fraction(out.scale))
    reach = [max(map(abs, limits(entry))) for entry in facts]
    multiplier, divisor = bounded_ratio(ratio, precision_of(*facts, out), *reach)
    bound = max(reach[0] * multiplier, reach[1] * divisor)
    denominator = lowering.forms.centred(second)
    zero = writer.constant(np.float32(0), "zero_f32")
    is_zero = writer.node("Cast", [writer.node("Equal", [denominator, zero], target)], target, to=TensorProto.FLOAT)
    denominator = writer.node("Add", [denominator, is_zero], target)
    parts = [_term(lowering, target, first, np.array(multiplier), True)]
    denominator = writer.node("Cast", [denominator], target, to=TensorProto.DOUBLE)
    factor = writer.constant(np.float64(divisor), f"{target}/divisor")
    parts.append(writer.node("Mul", [denominator, factor], target))
    round_and_clamp(lowering, target, writer.node("Div", parts, target), (fused.low, fused.high))
    exact = f"|a * m|, |b * n| <= {bound} < 2^52: the float64 quotient rounds (half to even) as the exact one"
    lowering.certify(group, f"Div float64 of integers, m = {multiplier}, n = {divisor}", bound, exact)


def _by_constant(lowering: Lowering, group: FusionGroup, fused: Fused, name: str, constant: Array) -> None:
    target, entry = group.outputs[0], lowering.forms.parameters(name)
    out = lowering.forms.parameters(target)
    reach, most = max(map(abs, limits(entry))), precision_of(entry, out)
    if constant.size > 1 and np.abs(constant).min() < np.abs(constant).max():
        most = PRECISION_16  # one divisor serves small and large factors alike

    def at(precision: int) -> Array:
        made: Array = np.rint(entry.scale * (2**precision - 1) / out.scale * constant)
        return made

    precision = bounded_precision(most, lambda bits: reach * _largest(at(bits)))
    factors, divisor = at(precision), 2**precision - 1
    bound = reach * _largest(factors)
    wide = bound >= FLOAT32_EXACT
    product = _term(lowering, target, name, factors, wide)
    _finish(
        lowering, group, fused, Accumulator(name=product, dtype="float64" if wide else "float32", bound=bound), divisor
    )


def _addends(
    lowering: Lowering, signed: list[tuple[str, int]], scale: Fraction, divisor: int
) -> tuple[list[_Term], int]:
    """The terms over D = ``divisor`` of an output in steps of ``scale``, and the bound of their sum."""
    terms: list[_Term] = []
    bound = 0
    for name, sign in signed:
        constant = lowering.constant(name)
        if constant is not None:
            values = sign * np.rint(constant.astype(np.float64) * (divisor / float(scale)))
            bound += _largest(values)
            terms.append((None, values))
        else:
            entry = lowering.forms.parameters(name)
            factor = sign * round_half_even(divisor * Fraction(entry.scale) / scale)
            bound += abs(factor) * max(map(abs, limits(entry)))
            terms.append((name, np.array(factor)))
    return terms, bound


def _largest(values: Array) -> int:
    """The largest magnitude. Raises NoIntegerKernelError where a value is infinite or not a number."""
    if not np.isfinite(values).all():
        raise NoIntegerKernelError("a constant that is infinite, or not a number, in units of the output")
    return int(np.abs(values).max(initial=0))


def _finish(
    lowering: Lowering, group: FusionGroup, fused: Fused, accumulator: Accumulator, divisor: int, multiplier: int = 1
) -> None:
    scaling = Scaling(multiplier=multiplier, divisor=np.array([divisor]), low=fused.low, high=fused.high)
    exact = requantise(lowering, group.outputs[0], accumulator, scaling)
    kernel = f"{fused.anchor.op_type} {accumulator.dtype} on integers, m = {multiplier}, D = {divisor}"
    lowering.certify(group, kernel, accumulator.bound, exact)


def _widened(lowering: Lowering, target: str, name: str, wide: bool) -> str:
    centred = lowering.forms.centred(name)
    return lowering.writer.node("Cast", [centred], target, to=TensorProto.DOUBLE) if wide else centred


def _term(lowering: Lowering, target: str, name: str | None, values: Array, wide: bool) -> str:
    """values, or name * values, in float64 (wide) or float32."""
    constant = lowering.writer.constant(values.astype(np.float64 if wide else np.float32), f"{target}/factor")
    if name is None:
        return constant
    return lowering.writer.node("Mul", [_widened(lowering, target, name, wide), constant], target)
