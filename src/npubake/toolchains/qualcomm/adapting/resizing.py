"""Qualcomm toolchain: nearest Resize in the one form that the HTP computes as ONNX says: asymmetric, floor.

The compiler takes other modes and computes some of them wrongly without a word (tests/qualcomm/test_operators.py), so
the source of every output position is computed here, by the formulas of ONNX's Resize-19; where it is that of
``asymmetric`` with ``floor``, the node says so, else a Gather for each axis takes its place, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npubake.graph.editing import attribute

_ROUNDINGS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda position: np.ceil(position - 0.5),
    "round_prefer_ceil": lambda position: np.floor(position + 0.5),
}


def sources(count: int, size: int, scale: float, mode: str, rounding: str) -> NDArray[np.int64]:
    """Of ``count`` output positions, the input position each copies, of ``size``. mode: coordinate transformation."""
    index = np.arange(count, dtype=np.float64)
    if mode == "align_corners":
        position = index * (size - 1) / (count - 1) if count > 1 else index * 0
    elif mode == "asymmetric":
        position = index / scale
    elif mode == "pytorch_half_pixel" and count == 1:
        position = index * 0
    else:
        position = (index + 0.5) / scale - 0.5
    return np.clip(_ROUNDINGS[rounding](position), 0, size - 1).astype(np.int64)


def spelt_nearest(
    node: onnx.NodeProto, shapes: tuple[Sequence[int], Sequence[int]], scales: Sequence[float]
) -> tuple[list[onnx.NodeProto], dict[str, NDArray[Any]]]:
    """``node``, a nearest Resize, in forms that are computed rightly, and their constants. shapes: of its input and its
    output; scales: of each axis.
    """
    mode = attribute(node, "coordinate_transformation_mode", "half_pixel")
    rounding = attribute(node, "nearest_mode", "round_prefer_floor")
    axes = [axis for axis, (size, count) in enumerate(zip(*shapes, strict=True)) if size != count]
    wanted = {axis: sources(shapes[1][axis], shapes[0][axis], scales[axis], mode, rounding) for axis in axes}
    plain = {axis: sources(shapes[1][axis], shapes[0][axis], scales[axis], "asymmetric", "floor") for axis in axes}
    if all((wanted[axis] == plain[axis]).all() for axis in axes):
        kept = [
            entry for entry in node.attribute if entry.name not in ("coordinate_transformation_mode", "nearest_mode")
        ]
        made = onnx.NodeProto()
        made.CopyFrom(node)
        del made.attribute[:]
        made.attribute.extend(kept)
        made.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        made.attribute.append(helper.make_attribute("nearest_mode", "floor"))
        return [made], {}
    nodes, seen, constants = list[onnx.NodeProto](), node.input[0], dict[str, NDArray[Any]]()
    for axis in axes:
        name = f"{node.name}/axis{axis}"
        constants[f"{name}/sources"] = wanted[axis]
        nodes.append(helper.make_node("Gather", [seen, f"{name}/sources"], [name], name=name, axis=axis))
        seen = name
    nodes[-1].output[0], nodes[-1].name = node.output[0], node.name
    return nodes, constants
