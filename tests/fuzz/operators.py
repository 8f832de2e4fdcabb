"""Every operator that a random graph may hold, as a function that puts it on a tensor. Grown by ``models``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.growing import DeadEndError, Growth

Grow = Callable[[Growth, str], str]

PLAIN = (
    "Abs", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Mish", "Neg", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
# Functions that have no value, or too large a one, somewhere: the span that a Clip in front leaves them.
CLIPPED = {
    "Acos": (-0.95, 0.95), "Acosh": (1.1, 5.0), "Asin": (-0.95, 0.95), "Atanh": (-0.9, 0.9), "Cosh": (-3.0, 3.0),
    "Exp": (-5.0, 3.0), "Log": (0.05, 8.0), "Reciprocal": (0.2, 6.0), "Sinh": (-3.0, 3.0), "Sqrt": (0.0, 9.0),
    "Tan": (-1.2, 1.2),
}  # fmt: skip


def function(growth: Growth, tensor: str) -> str:
    kind = growth.dice.choice((*PLAIN, *CLIPPED, "Gelu", "PRelu", "Pow", "Clip"))
    if kind in CLIPPED:
        low, high = CLIPPED[kind]
        return growth.add(kind, [clipped(growth, tensor, low, high)])
    if kind == "Gelu":
        return growth.add(kind, [tensor], approximate=growth.dice.choice(("none", "tanh")))
    if kind == "PRelu":
        return growth.add(kind, [tensor, growth.scalar(growth.dice.choice((0.1, -0.3, 0.0)))])
    if kind == "Pow":
        exponent = growth.dice.choice((2.0, 3.0, 0.5, 1.0))
        base = clipped(growth, tensor, 0.1, 4.0) if exponent == 0.5 else clipped(growth, tensor, -4.0, 4.0)
        return growth.add(kind, [base, growth.scalar(exponent)])
    if kind == "Clip":
        low, high = growth.dice.choice(((0.0, 6.0), (-1.0, 1.0), (0.0, None), (None, 0.5), (None, None)))
        ends = [growth.scalar(end) if end is not None else "" for end in (low, high)]
        return growth.add(kind, [tensor, *ends], growth.shapes[tensor])
    return growth.add(kind, [tensor])


def clipped(growth: Growth, tensor: str, low: float, high: float) -> str:
    return growth.add("Clip", [tensor, growth.scalar(low), growth.scalar(high)], growth.shapes[tensor])


def gate(growth: Growth, tensor: str) -> str:
    """Compositions that a pass or a pattern looks for, and near misses of them."""
    kind = growth.dice.choice(("silu", "mish", "quick", "hard", "gelu", "identity", "sum", "affine"))
    if kind == "silu":
        return growth.add("Mul", [tensor, growth.add("Sigmoid", [tensor])])
    if kind == "mish":
        return growth.add("Mul", [growth.add("Tanh", [growth.add("Softplus", [tensor])]), tensor])
    if kind == "quick":
        scaled = growth.add("Mul", [tensor, growth.scalar(1.702)])
        return growth.add("Mul", [tensor, growth.add("Sigmoid", [scaled])])
    if kind == "hard":
        moved = growth.add("Add", [tensor, growth.scalar(3)])
        six = growth.add("Clip", [moved, growth.scalar(0), growth.scalar(6)], growth.shapes[tensor])
        return growth.add("Div", [growth.add("Mul", [tensor, six]), growth.scalar(growth.dice.choice((6.0, 5.0)))])
    if kind == "gelu":
        inner = growth.add("Erf", [growth.add("Div", [tensor, growth.scalar(2**0.5)])])
        whole = growth.add("Mul", [tensor, growth.add("Add", [inner, growth.scalar(1)])])
        return growth.add("Mul", [whole, growth.scalar(0.5)])
    if kind == "identity":
        return growth.add(growth.dice.choice(("Identity", "Dropout")), [tensor])
    if kind == "sum":
        return growth.add("Sum", [tensor, growth.add("Relu", [tensor]), tensor])
    scaled = growth.add("Mul", [tensor, growth.scalar(growth.dice.choice((1.0, -0.5, 0.0, 20.0)))])
    return growth.add("Sub", [growth.scalar(growth.dice.choice((0.0, 0.25))), scaled])


def convolution(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    if not 3 <= len(shape) <= 5:
        raise DeadEndError("Conv")
    spatial, channels = len(shape) - 2, shape[1]
    groups = growth.dice.choice([count for count in (1, 1, 2, channels) if channels % count == 0])
    kernel = [growth.dice.integer(1, min(3, size)) for size in shape[2:]]
    outputs = groups * growth.dice.integer(1, max(1, 6 // groups))
    attributes: dict[str, Any] = {"group": groups}
    if growth.dice.integer(0, 2):
        attributes["pads"] = [growth.dice.integer(0, size - 1) for size in (*kernel, *kernel)]
    elif growth.dice.integer(0, 1):
        attributes["auto_pad"] = growth.dice.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    attributes["strides"] = [growth.dice.integer(1, 2) for _ in range(spatial)]
    if "auto_pad" not in attributes and growth.dice.integer(0, 3) == 0:
        attributes["dilations"] = [growth.dice.integer(1, 2) for _ in range(spatial)]
    bias = [growth.weights(outputs)] if growth.dice.integer(0, 3) else []
    made = growth.add("Conv", [tensor, growth.weights(outputs, channels // groups, *kernel), *bias], **attributes)
    return after(growth, made)


def transposed(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    if len(shape) != 4:
        raise DeadEndError("ConvTranspose")
    groups = growth.dice.choice([count for count in (1, 2) if shape[1] % count == 0])
    kernel = [growth.dice.integer(1, 3), growth.dice.integer(1, 3)]
    outputs = growth.dice.integer(1, 3)
    bias = [growth.weights(groups * outputs)] if growth.dice.integer(0, 1) else []
    strides = [growth.dice.integer(1, 2), growth.dice.integer(1, 2)]
    weight = growth.weights(shape[1], outputs, *kernel)
    made = growth.add("ConvTranspose", [tensor, weight, *bias], group=groups, strides=strides)
    return after(growth, made)


def after(growth: Growth, made: str) -> str:
    """What stands behind a layer: nothing, a clamp, a normalisation, a scale."""
    kind = growth.dice.choice(("", "", "Relu", "Clip", "BatchNormalization", "Mul", "Add"))
    shape = growth.shapes[made]
    if kind == "Relu":
        return growth.add(kind, [made])
    if kind == "Clip":
        return clipped(growth, made, 0.0, growth.dice.choice((6.0, 0.7)))
    if kind == "BatchNormalization" and len(shape) > 2:
        four = [growth.weights(shape[1]) for _ in range(3)]
        variance = growth.constant(
            np.abs(growth.generator.standard_normal(shape[1])).astype(np.float32) + np.float32(0.3)
        )
        return growth.add(kind, [made, *four, variance], shape)
    if kind in ("Mul", "Add") and len(shape) > 2:
        return growth.add(kind, [made, growth.weights(shape[1], *(1,) * (len(shape) - 2))])
    return made


def linear(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    width = growth.dice.integer(1, 7)
    if len(shape) == 2 and growth.dice.integer(0, 1):
        first, second = growth.dice.integer(0, 1), growth.dice.integer(0, 1)
        depth, rows = (shape[0], shape[1]) if first else (shape[1], shape[0])
        weight = growth.weights(*((width, depth) if second else (depth, width)))
        sizes = growth.dice.choice(((width,), (1, width), (1,), (), (rows, width), (rows, 1), None))
        bias = [] if sizes is None else [growth.constant(growth.generator.standard_normal(sizes).astype(np.float32))]
        alpha, beta = growth.dice.choice((1.0, 0.5, -2.0)), growth.dice.choice((1.0, 3.0, 0.0))
        made = growth.add("Gemm", [tensor, weight, *bias], transA=first, transB=second, alpha=alpha, beta=beta)
    elif len(shape) >= 2:
        made = growth.add("MatMul", [tensor, growth.weights(shape[-1], width)])
        if growth.dice.integer(0, 1):
            made = growth.add("Add", [made, growth.weights(width)])
    else:
        raise DeadEndError("MatMul")
    return growth.add("Relu", [made]) if growth.dice.integer(0, 2) == 0 else made


def product(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    if len(shape) < 2:
        raise DeadEndError("MatMul")
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return growth.add(
        "MatMul",
        [
            tensor,
            growth.add(
                "Transpose",
                [
                    partner(growth, tensor, shape),
                ],
                perm=order,
            ),
        ],
    )


def partner(growth: Growth, tensor: str, shape: tuple[int, ...]) -> str:
    """A tensor of that shape: another one, or the same."""
    same = [name for name, size in growth.shapes.items() if size == shape]
    return str(growth.dice.choice(same)) if same else tensor


def combined(growth: Growth, tensor: str) -> str:
    """Two computed tensors, or one and a constant that is broadcast."""
    shape = growth.shapes[tensor]
    kind = growth.dice.choice(("Add", "Sub", "Mul", "Div"))
    if growth.dice.integer(0, 1):
        other = partner(growth, tensor, shape)
        if kind == "Div":
            other = clipped(growth, other, 0.3, 5.0)
    else:
        sizes = tuple(size if growth.dice.integer(0, 1) else 1 for size in shape)
        sizes = sizes[growth.dice.integer(0, len(shape)) :]
        value = growth.generator.standard_normal(sizes).astype(np.float32)
        other = growth.constant(np.abs(value) + np.float32(0.4) if kind == "Div" else value)
    pair = [tensor, other] if kind == "Div" or growth.dice.integer(0, 1) else [other, tensor]
    made = growth.add(kind, pair)
    return growth.add("Relu", [made]) if growth.dice.integer(0, 3) == 0 else made


def joined(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    axis = growth.dice.integer(0, len(shape) - 1)
    fitting = [
        name
        for name, size in growth.shapes.items()
        if len(size) == len(shape)
        and all(a == b for i, (a, b) in enumerate(zip(size, shape, strict=True)) if i != axis)
    ]
    parts = [tensor, *(growth.dice.choice(fitting) for _ in range(growth.dice.integer(0, 2)))]
    if growth.dice.integer(0, 4) == 0:
        parts.insert(0, growth.weights(*shape))
    return growth.add("Concat", parts, axis=axis if growth.dice.integer(0, 1) else axis - len(shape))


def softmax(growth: Growth, tensor: str) -> str:
    return growth.add("Softmax", [tensor], axis=growth.dice.integer(-len(growth.shapes[tensor]), -1))


def normalised(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    axis = growth.dice.integer(max(-2, 1 - len(shape)), -1) if len(shape) > 1 else -1
    parts = [growth.weights(*shape[axis:])]
    if growth.dice.integer(0, 1):
        parts.append(growth.weights(*shape[axis:]))
    return growth.add("LayerNormalization", [tensor, *parts], shape, axis=axis)


def left_in_float(growth: Growth, tensor: str) -> str:
    """Operators without an integer kernel."""
    shape = growth.shapes[tensor]
    kind = growth.dice.choice(("Max", "Min", "Where", "CumSum", "InstanceNormalization", "Cast", "LpNormalization"))
    if kind in ("Max", "Min"):
        return growth.add(kind, [tensor, partner(growth, tensor, shape)])
    if kind == "Where":
        flag = growth.constant(growth.generator.random(shape) < 0.5)
        return growth.add("Where", [flag, tensor, partner(growth, tensor, shape)])
    if kind == "CumSum":
        return growth.add(kind, [tensor, growth.constant(np.array(len(shape) - 1))])
    if kind == "InstanceNormalization" and len(shape) >= 3 and int(np.prod(shape[2:])) > 1:
        return growth.add(kind, [tensor, growth.weights(shape[1]), growth.weights(shape[1])], shape)
    if kind == "LpNormalization":
        return growth.add(kind, [tensor], axis=-1, p=2)
    return growth.add("Cast", [tensor], to=1)
