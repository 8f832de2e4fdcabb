"""Products as exporters spell them: constants on either side, batches, Einsum, computed weights. As ``operators``."""

from __future__ import annotations

from tests.fuzz.growing import DeadEndError, Growth


def spelt(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    pictures = ("conv", "conv", "conv") if len(shape) == 4 and shape[0] == 1 else ()
    kind = growth.dice.choice(("left", "batch", "vector", "einsum", "einsum", "gemm", *pictures))
    if kind == "conv":
        return computed_convolution(growth, tensor)
    if kind == "gemm" and len(shape) == 2:
        return growth.add("Gemm", [growth.weights(growth.dice.integer(1, 4), shape[0]), tensor], alpha=0.5)
    if kind == "einsum":
        return einsum(growth, tensor)
    if len(shape) < 2:
        raise DeadEndError("MatMul")
    width = growth.dice.integer(1, 5)
    if kind == "vector":
        first = growth.dice.integer(0, 1)
        operands = [tensor, growth.weights(shape[-1])] if first else [growth.weights(shape[-2]), tensor]
        return growth.add("MatMul", operands)
    batch = shape[:-2] if growth.dice.integer(0, 1) else tuple(growth.dice.choice((1, size)) for size in shape[:-2])
    if kind == "left":
        return growth.add("MatMul", [growth.weights(*batch, width, shape[-2]), tensor])
    return growth.add("MatMul", [tensor, growth.weights(*batch, shape[-1], width)])


def einsum(growth: Growth, tensor: str) -> str:
    """A constant, or another tensor, some of whose axes are the first's, in any order."""
    shape = growth.shapes[tensor]
    own = "abcde"[: len(shape)]
    sizes = dict(zip(own, shape, strict=True))
    if growth.dice.integer(0, 3) == 0:
        others = [name for name, other in growth.shapes.items() if len(other) == len(shape) and other[0] == shape[0]]
        other = growth.dice.choice(others)
        second = own[0] + "vwxyz"[: len(shape) - 1]
        sizes |= dict(zip(second, growth.shapes[other], strict=True))
    else:
        taken = [label for label in own if growth.dice.integer(0, 1)]
        second = "".join([*taken, "z"][:: growth.dice.choice((1, -1))])
        sizes["z"] = growth.dice.integer(1, 4)
        other = growth.weights(*(sizes[label] for label in second))
    result = "".join(label for label in dict.fromkeys(own + second) if growth.dice.integer(0, 2)) or own[0]
    operands, terms = (
        ([tensor, other], [own, second]) if growth.dice.integer(0, 1) else ([other, tensor], [second, own])
    )
    return growth.add("Einsum", operands, equation=f"{','.join(terms)}->{result}")


def computed_convolution(growth: Growth, tensor: str) -> str:
    """A template is looked for: the weights are cut out of the tensor itself."""
    shape = growth.shapes[tensor]
    if min(shape[2:]) < 2:
        raise DeadEndError("Conv")
    kernel = [growth.dice.integer(1, 2), growth.dice.integer(1, 2)]
    bounds = [growth.integers(0, 0), growth.integers(*kernel), growth.integers(2, 3)]
    template = growth.add("Slice", [tensor, *bounds])
    groups = growth.dice.choice((1, shape[1]))
    if groups > 1:
        template = growth.add("Transpose", [template], perm=[1, 0, 2, 3])
    pads = [growth.dice.integer(0, 1) for _ in range(4)]
    strides = [growth.dice.integer(1, 2), growth.dice.integer(1, 2)]
    return growth.add("Conv", [tensor, template], group=groups, pads=pads, strides=strides)
