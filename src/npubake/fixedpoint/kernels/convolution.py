"""Room ``fixedpoint``: Conv and ConvTranspose. One group enters, its output tensor in integers leaves.

acc[c] = sum w[c, i] * (q[i] - zp) + b[c], q_out = clamp(zp_out + rhe(acc[c] / D[c])); padding counts as zero point.
"""

from __future__ import annotations

import numpy as np

from npubake.fixedpoint.arithmetic import FLOAT32_EXACT, FLOAT64_EXACT, INT32_LIMIT, accumulator_bound
from npubake.fixedpoint.kernels.bounds import within
from npubake.fixedpoint.kernels.convolution_parts import (
    BytePart,
    FloatPart,
    add_scaled,
    float_convolution,
    float_parts,
    float_weights,
    geometry,
    integer_convolution,
    lower_in_parts,
    weight_parts,
)
from npubake.fixedpoint.kernels.weights import (
    IntegerWeights,
    convolution_bias,
    finish_weighted,
    integer_weights,
)
from npubake.fixedpoint.lowering import Fused, Lowering, take_apart
from npubake.fixedpoint.requantise import Accumulator, clamp_limits, clip_quantized
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup
from npubake.quant.parameters import limits
from npubake.quant.weight_grid import NARROW_LIMIT


def lower_convolution(lowering: Lowering, group: FusionGroup) -> None:
    """Conv: QLinearConv uint8 x uint8, or a float32 Conv on integers, or ConvInteger, as the bounds allow."""
    fused = take_apart(lowering, group, ("Conv",), fuses_add=True)
    bias = convolution_bias(lowering, fused, len(lowering.weights(group).scales))
    constants = integer_weights(lowering, group, fused, bias, output_axis=1)
    source, target = fused.anchor.input[0], group.outputs[0]
    facts = lowering.forms.parameters(source)
    low, high = limits(facts)
    bound = accumulator_bound(constants.weights, constants.bias, low, high)
    if facts.dtype != "uint8" or (not constants.in_bytes and bound >= FLOAT32_EXACT):
        lower_in_parts(lowering, group, fused, constants, bound)
        return
    depthwise = constants.weights.shape[1] == 1 and attribute(fused.anchor, "group", 1) > 1
    plain = not lowering.parameters.groups[group.name].accumulator_output
    narrow = constants.in_bytes and constants.divisors is not None and constants.divisors.max() <= NARROW_LIMIT
    to_bytes = plain and narrow and lowering.forms.parameters(target).dtype == "uint8" and constants.weights.ndim == 4
    if to_bytes and bound < INT32_LIMIT and not (depthwise and bound < FLOAT32_EXACT):
        _qlinear_convolution(lowering, group, fused, constants, bound)
    elif bound < FLOAT32_EXACT:
        weights = constants.stored(lowering, target, "float32")
        name = float_convolution(lowering, fused.anchor, lowering.forms.centred(source), weights, constants.bias)
        accumulator = Accumulator(name=name, dtype="float32", bound=bound, kernel="Conv float32 on integers")
        finish_weighted(lowering, group, fused, constants, accumulator)
    else:
        within(bound, INT32_LIMIT, "int32 accumulator")
        whole = BytePart(name=lowering.forms.quantized(source), zero_point=facts.zero_point, factor=1)
        name = integer_convolution(lowering, fused.anchor, whole, constants.stored(lowering, target, "uint8"), 128)
        addend = constants.bias_along(1, constants.weights.ndim).astype(np.int32)
        bias_name = lowering.writer.constant(addend, f"{target}/bias")
        name = lowering.writer.node("Add", [name, bias_name], target)
        accumulator = Accumulator(name=name, dtype="int32", bound=bound, kernel="ConvInteger uint8 x uint8")
        finish_weighted(lowering, group, fused, constants, accumulator)


def lower_transposed_convolution(lowering: Lowering, group: FusionGroup) -> None:
    """ConvTranspose: float32 on integers; input channels, and parts of wide inputs and weights, within 2**24."""
    fused = take_apart(lowering, group, ("ConvTranspose",), fuses_add=True)
    groups = attribute(fused.anchor, "group", 1)
    bias = convolution_bias(lowering, fused, len(lowering.weights(group).scales) * groups)
    constants = integer_weights(lowering, group, fused, bias, output_axis=1)
    source, target, writer = fused.anchor.input[0], group.outputs[0], lowering.writer
    low, high = limits(lowering.forms.parameters(source))
    bound = accumulator_bound(constants.rows(groups), constants.bias, low, high)
    if bound < FLOAT32_EXACT:
        weights = constants.stored(lowering, target, "float32")
        name = float_convolution(lowering, fused.anchor, lowering.forms.centred(source), weights, constants.bias)
        accumulator = Accumulator(name=name, dtype="float32", bound=bound, kernel="ConvTranspose float32 on integers")
        finish_weighted(lowering, group, fused, constants, accumulator)
        return
    within(bound, FLOAT64_EXACT, "float64 sum")
    total = ""
    for part in float_parts(lowering, source, target):
        for unit, whole in weight_parts(constants):
            for piece in _channel_parts(whole, groups, part):
                name = float_weights(lowering, target, piece, unit)
                made = float_convolution(lowering, fused.anchor, part.name, name)
                total = add_scaled(lowering, target, total, made, 1)
    bias_f64 = constants.bias_along(1, len(lowering.shape(target))).astype(np.float64)
    total = writer.node("Add", [total, writer.constant(bias_f64, f"{target}/bias")], target)
    accumulator = Accumulator(
        name=total, dtype="float64", bound=bound, kernel="ConvTranspose float32 in parts, float64 sum"
    )
    finish_weighted(lowering, group, fused, constants, accumulator)


def _qlinear_convolution(
    lowering: Lowering, group: FusionGroup, fused: Fused, constants: IntegerWeights, bound: int
) -> None:
    source, target, writer = fused.anchor.input[0], group.outputs[0], lowering.writer
    facts, out = lowering.forms.parameters(source), lowering.forms.parameters(target)
    bounds = clamp_limits(out, fused.low, fused.high)
    clamped = bounds != limits(out)
    one = writer.constant(np.float32(1), "one")
    inputs = [
        lowering.forms.quantized(source),
        one,
        writer.constant(np.uint8(facts.zero_point), f"{source}/zero_point"),
        constants.stored(lowering, target, "uint8"),
        writer.constant((1.0 / constants.dividing).astype(np.float32), f"{target}/multipliers"),
        writer.constant(np.full(len(constants.bias), 128, np.uint8), f"{target}/weight_zero_point"),
        one,
        writer.constant(np.uint8(out.zero_point), f"{target}/zero_point"),
        writer.constant(constants.bias.astype(np.int32), f"{target}/bias"),
    ]
    name = writer.unique(f"{target}/unclamped" if clamped else f"{target}/quantized")
    writer.node("QLinearConv", inputs, target, name, **geometry(fused.anchor))
    if clamped:
        clip_quantized(lowering, target, name, bounds)
    else:
        lowering.forms.put(target, "quantized", name)
    exact = (
        f"|acc| <= {bound} < 2^31; n odd, <= {NARROW_LIMIT} < 16384: 255.5 * 2^-23 < 1 / (2 n), "
        "so that multiplying by fl32(2^k / n) rounds as the exact quotient"
    )
    lowering.certify(group, "QLinearConv uint8 x uint8", bound, exact)


def _channel_parts(constants: IntegerWeights, groups: int, part: FloatPart) -> list[IntegerWeights]:
    """Weights with all but some input channels zeroed, each within 2**24 with ``part``, together the whole.

    Raises NoIntegerKernelError where one input channel alone is beyond.
    """
    count, parts, first = constants.weights.shape[0], [], 0
    zero = np.zeros_like(constants.bias)
    while first < count:
        last = count
        while True:
            piece = np.zeros_like(constants.weights)
            piece[first:last] = constants.weights[first:last]
            chosen = constants.with_weights(piece)
            bound = accumulator_bound(chosen.rows(groups), zero, part.low, part.high)
            if bound < FLOAT32_EXACT:
                break
            if last - first == 1:
                within(bound, FLOAT32_EXACT, "float32 sum of one input channel")
            last = first + max(1, (last - first) // 2)
        parts.append(chosen)
        first = last
    return parts
