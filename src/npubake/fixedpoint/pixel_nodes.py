"""Fixed-point room: the nodes that turn the runtime's bytes into pixels, and pixels into values. Node lists only.

  nv12    s = luma * Y + ConvTranspose2x2([U, V]) + bias;  pixel = sat8(rint(s / 2**14))     (chroma: nearest, 2 x 2)
  yuv444  s = luma * Y + ConvTranspose1x1([U, V]) + bias;  pixel = sat8(rint(s / 2**14))
  others  pixel = transpose(runtime tensor), channels in the model's order
  value   = table[pixel], one table a channel

All sums are integers below 2**24 (``colour``), exact in float32 in any order and with FMA; s / 2**14 is exact, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.fixedpoint.colour import BT601, CHROMA_CENTRE, ONE, RuntimeInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Sizes of one model input of images. layout: NCHW or NHWC."""

    batch: int
    channels: int
    height: int
    width: int
    layout: str

    @property
    def planar(self) -> list[int]:
        return [self.batch, self.channels, self.height, self.width]


@dataclass(slots=True)
class Patch:
    """Nodes, constants and graph inputs that take a model input's place; prefix keeps their names apart."""

    prefix: str
    nodes: list[onnx.NodeProto]
    constants: list[onnx.TensorProto]
    inputs: list[onnx.ValueInfoProto]

    def add(self, op_type: str, inputs: Sequence[str], label: str, **attributes: Any) -> str:
        """Append a node with one output; returns the output's name."""
        name = f"{self.prefix}/{label}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, label: str, value: NDArray[Any]) -> str:
        name = f"{self.prefix}/{label}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def feed(self, name: str, shape: Sequence[int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, list(shape)))
        return name


def look_up(patch: Patch, pixels: str, table: NDArray[Any], frame: Frame) -> str:
    """table[c][pixel] for planar pixels: 1-D GatherElements, the fastest exact lookup of ONNX Runtime's CPU."""
    flat = patch.constant("flat", np.array([-1], dtype=np.int64))
    if bool((table == table[:1]).all()):
        shape = patch.constant("shape", np.array(frame.planar, dtype=np.int64))
        return _look_up_plane(patch, pixels, patch.constant("table", table[0]), (flat, shape), "value")
    ones = patch.constant("ones", np.ones(frame.channels, dtype=np.int64))
    shape = patch.constant("shape", np.array([frame.batch, 1, frame.height, frame.width], dtype=np.int64))
    planes = [f"{patch.prefix}/plane{index}" for index in range(frame.channels)]
    patch.nodes.append(helper.make_node("Split", [pixels, ones], planes, name=f"{patch.prefix}/split", axis=1))
    values = [
        _look_up_plane(patch, plane, patch.constant(f"table{index}", table[index]), (flat, shape), f"value{index}")
        for index, plane in enumerate(planes)
    ]
    return patch.add("Concat", values, "value", axis=1)


def _look_up_plane(patch: Patch, pixels: str, table: str, shapes: tuple[str, str], label: str) -> str:
    line = patch.add("Reshape", [pixels, shapes[0]], f"{label}_line")
    index = patch.add("Cast", [line], f"{label}_index", to=TensorProto.INT32)
    found = patch.add("GatherElements", [table, index], f"{label}_found", axis=0)
    return patch.add("Reshape", [found, shapes[1]], label)


def _interleaved(patch: Patch, spec: RuntimeInput, frame: Frame) -> str:
    """rgb, bgr: [N, H, W, 3] to planar pixels in the model's channel order."""
    feed = patch.feed(spec.name, [frame.batch, frame.height, frame.width, frame.channels])
    planar = patch.add("Transpose", [feed], "planar", perm=[0, 3, 1, 2])
    if spec.type == spec.channels:
        return planar
    order = patch.constant("order", np.array([2, 1, 0], dtype=np.int64))
    return patch.add("Gather", [planar, order], "ordered", axis=1)


def _gray(patch: Patch, spec: RuntimeInput, frame: Frame) -> str:
    feed = patch.feed(spec.name, frame.planar)
    return patch.add("Identity", [feed], "planar")


def _yuv444(patch: Patch, spec: RuntimeInput, frame: Frame) -> str:
    feed = patch.feed(spec.name, [frame.batch, frame.height, frame.width, 3])
    planar = patch.add("Transpose", [feed], "planar", perm=[0, 3, 1, 2])
    sizes = patch.constant("sizes", np.array([1, 2], dtype=np.int64))
    names = [f"{patch.prefix}/y", f"{patch.prefix}/uv"]
    patch.nodes.append(helper.make_node("Split", [planar, sizes], names, name=f"{patch.prefix}/split_yuv", axis=1))
    return _to_rgb(patch, spec, names, 1)


def _nv12(patch: Patch, spec: RuntimeInput, frame: Frame) -> str:
    y_name, uv_name = spec.tensors
    y_feed = patch.feed(y_name, [frame.batch, frame.height, frame.width, 1])
    uv_feed = patch.feed(uv_name, [frame.batch, frame.height // 2, frame.width // 2, 2])
    shape = patch.constant("luma_shape", np.array([frame.batch, 1, frame.height, frame.width], dtype=np.int64))
    planes = [patch.add("Reshape", [y_feed, shape], "y"), patch.add("Transpose", [uv_feed], "uv", perm=[0, 3, 1, 2])]
    return _to_rgb(patch, spec, planes, 2)


def _to_rgb(patch: Patch, spec: RuntimeInput, planes: Sequence[str], repeat: int) -> str:
    """planes: Y [N, 1, H, W] and UV [N, 2, H / repeat, W / repeat], uint8. Upsampling and matrix are one ConvTranspose
    with ``repeat`` x ``repeat`` equal taps and that stride, so that each output has one tap (measured at 640 x 640:
    a Conv over [Y, U, V] takes twice to three times as long).
    """
    numbers = BT601[spec.range]
    chroma = np.array(numbers.to_rgb, dtype=np.int64)[:: -1 if spec.channels == "bgr" else 1]
    bias = -CHROMA_CENTRE * chroma.sum(axis=1) - numbers.offset * numbers.luma
    y_numbers = patch.add("Cast", [planes[0]], "y_numbers", to=TensorProto.FLOAT)
    weighted = patch.add(
        "Mul", [y_numbers, patch.constant("luma", np.array([numbers.luma], dtype=np.float32))], "weighted"
    )
    uv_numbers = patch.add("Cast", [planes[1]], "uv_numbers", to=TensorProto.FLOAT)
    taps = np.broadcast_to(chroma.T[:, :, None, None], (2, 3, repeat, repeat)).astype(np.float32)
    constants = [patch.constant("weights", taps), patch.constant("bias", bias.astype(np.float32))]
    colour = patch.add("ConvTranspose", [uv_numbers, *constants], "colour", strides=[repeat, repeat])
    total = patch.add("Add", [weighted, colour], "sum")
    scale = patch.constant("one", np.array(ONE, dtype=np.float32))
    zero = patch.constant("zero", np.array(0, dtype=np.uint8))
    return patch.add("QuantizeLinear", [total, scale, zero], "rgb")


PIXELS: Mapping[str, Callable[[Patch, RuntimeInput, Frame], str]] = {
    "rgb": _interleaved,
    "bgr": _interleaved,
    "gray": _gray,
    "yuv444": _yuv444,
    "nv12": _nv12,
}
