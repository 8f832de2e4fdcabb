"""Operators that move, pool, resize or reduce, as functions that put them on a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.growing import DeadEndError, Growth


def moved(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    kind = growth.dice.choice(
        ("Reshape", "Flatten", "Squeeze", "Transpose", "Slice", "Split", "Gather", "Expand", "Tile", "Pad", "Depth")
    )
    rank = len(shape)
    if kind == "Reshape":
        return reshaped(growth, tensor)
    if kind == "Flatten":
        return growth.add(kind, [tensor], axis=growth.dice.integer(0, rank))
    if kind == "Squeeze":
        wide = growth.add("Unsqueeze", [tensor, growth.integers(growth.dice.integer(0, rank))])
        ones = [axis for axis, size in enumerate(growth.shapes[wide]) if size == 1]
        return growth.add("Squeeze", [wide, growth.integers(growth.dice.choice(ones))]) if rank > 3 else wide
    if kind == "Transpose":
        order = list(range(rank))
        for _ in range(growth.dice.integer(0, 3)):
            left, right = growth.dice.integer(0, rank - 1), growth.dice.integer(0, rank - 1)
            order[left], order[right] = order[right], order[left]
        return growth.add(kind, [tensor], perm=order)
    if kind == "Slice":
        return sliced(growth, tensor)
    if kind == "Gather":
        axis = growth.dice.integer(0, rank - 1)
        places = [growth.dice.integer(-shape[axis], shape[axis] - 1) for _ in range(growth.dice.integer(1, 3))]
        return growth.add(kind, [tensor, growth.integers(*places)], axis=axis)
    if kind in ("Expand", "Tile"):
        times = [growth.dice.integer(1, 2) for _ in shape]
        wanted = [size * (by if size == 1 or kind == "Tile" else 1) for size, by in zip(shape, times, strict=True)]
        return growth.add(kind, [tensor, growth.integers(*(times if kind == "Tile" else wanted))])
    if kind == "Pad":
        return padded(growth, tensor)
    if kind == "Depth" and rank == 4:
        name = growth.dice.choice(("DepthToSpace", "SpaceToDepth"))
        more = {"mode": growth.dice.choice(("DCR", "CRD"))} if name == "DepthToSpace" else {}
        return growth.add(name, [tensor], blocksize=2, **more)
    return split(growth, tensor)


def reshaped(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    total = int(np.prod(shape))
    divisors = [size for size in range(1, total + 1) if total % size == 0]
    first = growth.dice.choice(divisors)
    second = growth.dice.choice([size for size in divisors if total // first % size == 0])
    sizes = growth.dice.choice(((first, -1), (1, first, -1), (first, second, -1), (0, -1), (1, first, second, -1)))
    return growth.add("Reshape", [tensor, growth.integers(*sizes)])


def sliced(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    axis = growth.dice.integer(0, len(shape) - 1)
    start = growth.dice.integer(0, shape[axis] - 1)
    if growth.dice.integer(0, 3) == 0:
        ends = [growth.integers(shape[axis] - 1), growth.integers(-(2**62)), growth.integers(axis), growth.integers(-1)]
    else:
        stop, step = growth.dice.integer(start + 1, shape[axis]), growth.dice.integer(1, 2)
        ends = [growth.integers(number) for number in (start, stop, axis, step)]
    return growth.add("Slice", [tensor, *ends])


def split(growth: Growth, tensor: str) -> str:
    """Both parts, joined the other way round; or the first part alone."""
    shape = growth.shapes[tensor]
    axis = growth.dice.integer(0, len(shape) - 1)
    first = growth.dice.integer(1, shape[axis])
    sizes = growth.integers(first, shape[axis] - first)
    parts = [growth.fresh("t"), growth.fresh("t")]
    halves = [tuple(n if i == axis else size for i, size in enumerate(shape)) for n in (first, shape[axis] - first)]
    made = growth.add("Split", [tensor, sizes], halves[0], axis=axis)
    node = growth.nodes[-1]
    node.output.append(parts[1])
    if growth.dice.integer(0, 1):
        return growth.add("Concat", [parts[1], made], shape, axis=axis)
    return made


def padded(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    mode = growth.dice.choice(("constant", "constant", "reflect", "edge"))
    most = [min(2, size - 1) if mode == "reflect" else 2 for size in shape]
    pads = [growth.dice.integer(0, each) if axis >= len(shape) - 2 else 0 for axis, each in enumerate(most)] * 2
    value = (
        [growth.scalar(growth.dice.choice((0.0, 0.0, -0.7)))]
        if mode == "constant" and growth.dice.integer(0, 1)
        else []
    )
    return growth.add("Pad", [tensor, growth.integers(*pads), *value], mode=mode)


def pooled(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    if len(shape) not in (3, 4):
        raise DeadEndError("pool")
    kind = growth.dice.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if kind.startswith("Global"):
        return growth.add(kind, [tensor])
    kernel = [growth.dice.integer(1, min(3, size)) for size in shape[2:]]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    attributes["strides"] = [growth.dice.integer(1, 2) for _ in kernel]
    if growth.dice.integer(0, 1):
        attributes["pads"] = [growth.dice.integer(0, size - 1) for size in kernel] * 2
    attributes["ceil_mode"] = int(growth.dice.integer(0, 3) == 0)
    if kind == "AveragePool":
        attributes["count_include_pad"] = growth.dice.integer(0, 1)
    return growth.add(kind, [tensor], **attributes)


def reduced(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    kind = growth.dice.choice(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"))
    axes = sorted({growth.dice.integer(-len(shape), -1) for _ in range(growth.dice.integer(1, 2))})
    keep = growth.dice.integer(0, 1)
    return growth.add(kind, [tensor, growth.integers(*axes)], keepdims=keep)


def resized(growth: Growth, tensor: str) -> str:
    shape = growth.shapes[tensor]
    if len(shape) != 4:
        raise DeadEndError("Resize")
    mode = growth.dice.choice(("nearest", "linear"))
    placed = growth.dice.choice(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": placed}
    if mode == "nearest":
        attributes["nearest_mode"] = growth.dice.choice(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
    if placed != "align_corners" and growth.dice.integer(0, 1):  # there onnx's evaluator does not round the size
        scales = growth.floats(1, 1, growth.dice.choice((1.0, 2.0, 0.5)), growth.dice.choice((1.0, 2.0, 3.0)))
        return growth.add("Resize", [tensor, "", scales], **attributes)
    sizes = growth.integers(*shape[:2], growth.dice.integer(1, 6), growth.dice.integer(1, 6))
    return growth.add("Resize", [tensor, "", "", sizes], **attributes)
