"""Room ``fixedpoint``: Gemm, MatMul with a constant or of two tensors. One group enters, integers leave."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from npubake.fixedpoint.arithmetic import (
    FLOAT32_EXACT,
    FLOAT64_EXACT,
    INT32_LIMIT,
    accumulator_bound,
    precision_of,
)
from npubake.fixedpoint.kernels.bounds import bounded_ratio, within
from npubake.fixedpoint.kernels.weights import (
    NUMPY_OF,
    IntegerWeights,
    finish_weighted,
    integer_weights,
    leave_unrounded,
)
from npubake.fixedpoint.lowering import Fused, Lowering, NoIntegerKernelError, take_apart
from npubake.fixedpoint.requantise import Accumulator, Scaling, requantise
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits

MANY_PRODUCTS = 2**20  # from here on MatMulInteger is the faster kernel (docs/arithmetic.md); both are exact


def lower_linear(lowering: Lowering, group: FusionGroup) -> None:
    """acc = sum (q - zp) * w + b along the last axis."""
    fused = take_apart(lowering, group, ("Gemm", "MatMul"), fuses_add=True)
    source, target, writer = fused.anchor.input[0], group.outputs[0], lowering.writer
    constants = _constants(lowering, group, fused)
    low, high = limits(lowering.forms.parameters(source))
    bound = accumulator_bound(constants.weights.T, constants.bias, low, high)
    accumulator = _product(lowering, fused, constants, bound)
    if np.any(constants.bias):
        bias = writer.constant(constants.bias.astype(NUMPY_OF[accumulator.dtype]), f"{target}/bias")
        name = writer.node("Add", [accumulator.name, bias], target)
        accumulator = replace(accumulator, name=name)
    finish_weighted(lowering, group, fused, constants, accumulator)


def lower_matmul(lowering: Lowering, group: FusionGroup) -> None:
    """acc = sum (a - za) * (b - zb), scaled by sa * sb / so."""
    fused = take_apart(lowering, group, ("MatMul",))
    first, second = fused.anchor.input
    target = group.outputs[0]
    facts = [lowering.forms.parameters(name) for name in (first, second)]
    depth = lowering.shape(first)[-1]
    reach = [max(-low, high) for low, high in map(limits, facts)]
    bound = depth * reach[0] * reach[1]
    products = prod(lowering.shape(target)) * depth
    eight = all(entry.dtype == "uint8" for entry in facts)
    if eight and bound < INT32_LIMIT and (products >= MANY_PRODUCTS or bound >= FLOAT32_EXACT):
        accumulator = _matmul_integer(lowering, target, first, second, bound)
    else:
        within(bound, FLOAT64_EXACT, "float64 sum")
        centred = (lowering.forms.centred(first), lowering.forms.centred(second))
        accumulator = _matmul_float(lowering, target, *centred, bound)
    step = Fraction(facts[0].scale) * Fraction(facts[1].scale)
    if lowering.parameters.groups[group.name].accumulator_output:
        exact = leave_unrounded(lowering, target, fused, (np.array([float(step)]), 0), accumulator)
        lowering.certify(group, accumulator.kernel, bound, exact)
        return
    out = lowering.forms.parameters(target)
    multiplier, divisor = bounded_ratio(step / Fraction(out.scale), precision_of(*facts, out), bound)
    scaling = Scaling(multiplier=multiplier, divisor=np.array([divisor]), low=fused.low, high=fused.high)
    exact = requantise(lowering, target, accumulator, scaling)
    lowering.certify(group, f"{accumulator.kernel}, m = {multiplier}, D = {divisor}", bound, exact)


def _product(lowering: Lowering, fused: Fused, constants: IntegerWeights, bound: int) -> Accumulator:
    """The product without the bias; ``bound`` counts the bias too."""
    source, target, writer = fused.anchor.input[0], fused.anchor.output[0], lowering.writer
    facts, depth = lowering.forms.parameters(source), constants.weights.shape[0]
    products = prod(lowering.shape(source)) // depth * constants.weights.size
    eight = facts.dtype == "uint8" and constants.in_bytes
    if eight and bound < INT32_LIMIT and (products >= MANY_PRODUCTS or bound >= FLOAT32_EXACT):
        inputs = [
            lowering.forms.quantized(source),
            constants.stored(lowering, target, "uint8"),
            writer.constant(np.uint8(facts.zero_point), f"{source}/zero_point"),
            writer.constant(np.uint8(128), "weight_zero_point"),
        ]
        name = writer.node("MatMulInteger", inputs, target)
        return Accumulator(name=name, dtype="int32", bound=bound, kernel="MatMulInteger uint8 x uint8")
    within(bound, FLOAT64_EXACT, "float64 sum")
    centred = lowering.forms.centred(source)
    if bound < FLOAT32_EXACT:
        weights = constants.stored(lowering, target, "float32")
        return _matmul_float(lowering, target, centred, weights, bound)
    operands = [writer.widened(centred, target), constants.stored(lowering, target, "float64")]
    name = writer.node("MatMul", operands, target)
    return Accumulator(name=name, dtype="float64", bound=bound, kernel="MatMul float64 on integers")


def _constants(lowering: Lowering, group: FusionGroup, fused: Fused) -> IntegerWeights:
    """Weights [K, N] as MatMul reads them, bias [N]."""
    anchor = fused.anchor
    values = lowering.constant(anchor.input[1])
    factors = (attribute(anchor, "alpha", 1.0), attribute(anchor, "beta", 1.0), attribute(anchor, "transA", 0))
    if values is None or values.ndim != 2 or factors != (1.0, 1.0, 0):
        raise NoIntegerKernelError("weights that are no constant matrix, or a Gemm with alpha, beta or transA")
    transposed = bool(attribute(anchor, "transB", 0))
    channels = values.shape[0 if transposed else 1]
    bias = np.zeros(channels)
    for addend in (lowering.constant(anchor.input[2]) if len(anchor.input) > 2 else None, fused.addend):
        if addend is not None:
            if addend.size not in (1, channels):
                raise NoIntegerKernelError(f"an addend of shape {addend.shape}")
            bias = bias + addend.astype(np.float64).reshape(-1)
    return integer_weights(lowering, group, fused, bias, output_axis=-1, transposed=transposed)


def _matmul_integer(lowering: Lowering, target: str, first: str, second: str, bound: int) -> Accumulator:
    writer, forms = lowering.writer, lowering.forms
    zeros = [
        writer.constant(np.uint8(forms.parameters(name).zero_point), f"{name}/zero_point") for name in (first, second)
    ]
    name = writer.node("MatMulInteger", [forms.quantized(first), forms.quantized(second), *zeros], target)
    return Accumulator(name=name, dtype="int32", bound=bound, kernel="MatMulInteger uint8 x uint8")


def _matmul_float(lowering: Lowering, target: str, first: str, second: str, bound: int) -> Accumulator:
    """MatMul in float32 or, beyond its bound, in float64."""
    writer = lowering.writer
    if bound < FLOAT32_EXACT:
        name = writer.node("MatMul", [first, second], target)
        return Accumulator(name=name, dtype="float32", bound=bound, kernel="MatMul float32 on integers")
    wide = [writer.widened(name, target) for name in (first, second)]
    name = writer.node("MatMul", wide, target)
    return Accumulator(name=name, dtype="float64", bound=bound, kernel="MatMul float64 on integers")
