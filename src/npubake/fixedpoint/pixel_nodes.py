"""Fixed-point room: the nodes that turn the runtime's bytes into pixels, and pixels into values. Node lists only.

  nv12    s = luma * Y + ConvTranspose2x2([U, V]) + bias;  pixel = sat8(rint(s / 2**14))     (chroma: nearest, 2 x 2)
  yuv444  s = Conv1x1([Y, U, V]) + bias;                   pixel = sat8(rint(s / 2**14))
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


def _matrix(spec: RuntimeInput) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
    """(chroma rows [3, 2] in the model's channel order, bias [3], luma factor), integer-valued float32."""
    numbers = BT601[spec.range]
    chroma = np.array(numbers.to_rgb, dtype=np.int64)[:: -1 if spec.channels == "bgr" else 1]
    bias = -CHROMA_CENTRE * chroma.sum(axis=1) - numbers.offset * numbers.luma
    return chroma.astype(np.float32), bias.astype(np.float32), numbers.luma


def _to_pixels(patch: Patch, total: str) -> str:
    scale = patch.constant("one", np.array(ONE, dtype=np.float32))
    zero = patch.constant("zero", np.array(0, dtype=np.uint8))
    return patch.add("QuantizeLinear", [total, scale, zero], "rgb")


def _yuv444(patch: Patch, spec: RuntimeInput, frame: Frame) -> str:
    feed = patch.feed(spec.name, [frame.batch, frame.height, frame.width, 3])
    chroma, bias, luma = _matrix(spec)
    weights = np.concatenate([np.full((3, 1), luma, dtype=np.float32), chroma], axis=1)
    planar = patch.add("Transpose", [feed], "planar", perm=[0, 3, 1, 2])
    numbers = patch.add("Cast", [planar], "numbers", to=TensorProto.FLOAT)
    constants = [patch.constant("weights", weights[:, :, None, None]), patch.constant("bias", bias)]
    return _to_pixels(patch, patch.add("Conv", [numbers, *constants], "sum"))


def _nv12(patch: Patch, spec: RuntimeInput, frame: Frame) -> str:
    """Chroma upsampling and matrix are one ConvTranspose whose four taps are equal: each output has one tap."""
    y_name, uv_name = spec.tensors
    y_feed = patch.feed(y_name, [frame.batch, frame.height, frame.width, 1])
    uv_feed = patch.feed(uv_name, [frame.batch, frame.height // 2, frame.width // 2, 2])
    chroma, bias, luma = _matrix(spec)
    shape = patch.constant("luma_shape", np.array([frame.batch, 1, frame.height, frame.width], dtype=np.int64))
    y_numbers = patch.add("Cast", [patch.add("Reshape", [y_feed, shape], "y")], "y_numbers", to=TensorProto.FLOAT)
    factor = patch.constant("luma", np.array([luma], dtype=np.float32))
    weighted = patch.add("Mul", [y_numbers, factor], "weighted")
    uv_planar = patch.add("Transpose", [uv_feed], "uv", perm=[0, 3, 1, 2])
    uv_numbers = patch.add("Cast", [uv_planar], "uv_numbers", to=TensorProto.FLOAT)
    taps = np.broadcast_to(chroma.T[:, :, None, None], (2, 3, 2, 2))
    constants = [patch.constant("weights", taps), patch.constant("bias", bias)]
    colour = patch.add("ConvTranspose", [uv_numbers, *constants], "colour", strides=[2, 2])
    return _to_pixels(patch, patch.add("Add", [weighted, colour], "sum"))


PIXELS: Mapping[str, Callable[[Patch, RuntimeInput, Frame], str]] = {
    "rgb": _interleaved,
    "bgr": _interleaved,
    "gray": _gray,
    "yuv444": _yuv444,
    "nv12": _nv12,
}
