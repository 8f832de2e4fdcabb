"""Qualcomm toolchain: nodes that turn the bytes that a board feeds into a model input's codes. A model is edited.

  rgb, bgr   uint8 [N, H, W, 3] -> DequantizeLinear (a step of 1) -> Transpose -> 1 x 1 Conv -> QuantizeLinear
  gray       uint8 [N, 1, H, W] -> DequantizeLinear (a step of 1) -> 1 x 1 Conv -> QuantizeLinear
  nv12, yuv444   pixels by ``colours``, then as rgb

The linear step, x / (divide_by * std) - mean / std, is the convolution: weights of a power of two of codes with the
step as scale, exact but for the rounding of float32 scales; the bias an int32 of 1/64 of a pixel's step. Where the
step is x / divide_by alone and the input's grid is the pixels' own (0..255, zero point 0), the bytes are the codes, and
nothing computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npubake.fixedpoint.colour import RuntimeInput
from npubake.fixedpoint.pixel_nodes import Frame
from npubake.fixedpoint.runtime_input import frame_of
from npubake.toolchains.qualcomm.adapting.chain import Chain
from npubake.toolchains.qualcomm.adapting.colours import BYTES, CAMERA_TYPES, add_pixels
from npubake.toolchains.qualcomm.adapting.grids import Grid, as_wide

_CODE = 64  # of the weight: a power of two, so that step * code is exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """inputs: of the record, by the names of the new inputs; facts: of the record's runtime_inputs."""

    inputs: dict[str, dict[str, Any]]
    facts: dict[str, Any]


def feed_pixels(model: onnx.ModelProto, spec: RuntimeInput, codes: str | None, grid: Grid | None) -> Fed:
    """Let the input of ``model`` (edited in place) take bytes. codes: the tensor of its integers, made by the
    QuantizeLinear that alone reads the input; None where the input stays in float.

    Raises RecipeError where the input is no such image.
    """
    frame = frame_of(model, spec)
    camera = spec.type in CAMERA_TYPES
    plain = spec.mean is None and spec.std is None and (camera or spec.type == spec.channels)
    pixels = Grid(dtype="uint8", scale=float(np.float32(1.0 / (spec.divide_by or 1))), zero_point=0, by="fixed")
    if not plain:
        pixels = Grid(dtype="uint8", scale=1.0, zero_point=0, by="fixed")
    chain = Chain(prefix=f"{spec.name}/runtime", seen=spec.tensors[0])
    line = spec.type != "gray"  # the board's bytes are [N, H, W, C]; gray has one channel: [N, 1, H, W]
    turned = line != (frame.layout == "NHWC")
    if camera or turned or not plain or grid is None or not grid.equals(pixels):
        _compute(chain, spec, _Edge(pixels=pixels, grid=grid, line=line, layout=frame.layout, plain=plain))
    _put_in_place(model, spec.name, chain, codes)
    shapes = _shapes(spec, frame)
    _take_bytes(model, spec.name, shapes)
    scale = BYTES.scale if camera else pixels.scale
    facts = {"model_input": spec.name, "dtype": "uint8", "scale": scale, "zero_point": 0, "kind": spec.type}
    return Fed(
        inputs={name: {**facts, "shape": shape} for name, shape in shapes.items()},
        facts={**spec.facts(), "height": frame.height, "width": frame.width, "layout": frame.layout},
    )


def _shapes(spec: RuntimeInput, frame: Frame) -> dict[str, list[int]]:
    """Of the board's tensors, by name."""
    if spec.type == "gray":
        return {spec.name: [frame.batch, 1, frame.height, frame.width]}
    if spec.type != "nv12":
        return {spec.name: [frame.batch, frame.height, frame.width, frame.channels]}
    luma, chroma = spec.tensors
    halves = [frame.batch, frame.height // 2, frame.width // 2, 2]
    return {luma: [frame.batch, frame.height, frame.width, 1], chroma: halves}


def _take_bytes(model: onnx.ModelProto, name: str, shapes: Mapping[str, list[int]]) -> None:
    """Let the board's tensors stand for the input."""
    made = [helper.make_tensor_value_info(each, TensorProto.UINT8, shape) for each, shape in shapes.items()]
    inputs = list(model.graph.input)
    position = next(index for index, value in enumerate(inputs) if value.name == name)
    del model.graph.input[:]
    model.graph.input.extend([*inputs[:position], *made, *inputs[position + 1 :]])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """line: whether the bytes come as [N, H, W, C]; layout: of the model's input; plain: no step but a division."""

    pixels: Grid
    grid: Grid | None
    line: bool
    layout: str
    plain: bool


def _compute(chain: Chain, spec: RuntimeInput, edge: _Edge) -> None:
    """From bytes to the input's codes, or its floats where it has no grid."""
    integer, planar = edge.grid is not None, not edge.line
    held = edge.pixels
    if spec.type in CAMERA_TYPES:
        add_pixels(chain, spec, held)
        planar = True
    else:
        chain.dequantise("pixels", held)
    if not planar and (edge.layout == "NCHW" or not edge.plain):
        chain.add("Transpose", "planar", perm=[0, 3, 1, 2])
        planar = True
        if integer:
            chain.through("planar", held)
    if not edge.plain and edge.grid is not None and edge.grid.bits > held.bits:
        held = as_wide(held)
        chain.through("wide", held)
    if not edge.plain:
        _linear_step(chain, spec, held.scale if integer else None)
        held = edge.grid or held
        if integer:
            chain.through("linear", held)
    if planar and edge.layout == "NHWC":
        chain.add("Transpose", "line", perm=[0, 2, 3, 1])
    if edge.grid is not None:
        chain.quantise("input", edge.grid)


def _linear_step(chain: Chain, spec: RuntimeInput, source_scale: float | None) -> None:
    """(p / divide_by - mean) / std of planar pixels, channels in the model's order, as a 1 x 1 convolution.

    source_scale: of the integers that it reads; None in float.
    """
    count = 1 if spec.channels == "gray" else 3
    mean, std = (np.array(values or [neutral] * count) for values, neutral in ((spec.mean, 0.0), (spec.std, 1.0)))
    factors, bias = 1.0 / ((spec.divide_by or 1) * std), -mean / std
    straight = spec.type in CAMERA_TYPES or spec.type == spec.channels
    order = np.eye(count) if straight else np.eye(count)[::-1]
    if source_scale is None:
        weights = (order * factors[:, None]).astype(np.float32)[..., None, None]
        names = (chain.constant("weights", weights), chain.constant("bias", bias.astype(np.float32)))
        chain.add("Conv", "linear_step", *names)
        return
    steps = factors / _CODE
    codes = (order * np.sign(steps)[:, None] * _CODE).astype(np.int8)[..., None, None]
    bias_steps = source_scale * np.abs(steps)
    bias_codes = np.rint(bias / bias_steps).astype(np.int32)
    operands = (
        chain.dequantised("weights", codes, np.abs(steps)),
        chain.dequantised("bias", bias_codes, bias_steps),
    )
    chain.add("Conv", "linear_step", *operands)


def _put_in_place(model: onnx.ModelProto, name: str, chain: Chain, codes: str | None) -> None:
    """Let what reads the input's codes (or the input itself) read the chain's last result."""
    old = [node for node in model.graph.node if codes is None or codes not in node.output]
    for node in old:
        for slot, read in enumerate(node.input):
            if read == (codes or name):
                node.input[slot] = chain.seen
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in old]
    del model.graph.node[:]
    model.graph.node.extend([*chain.nodes, *nodes])
    model.graph.initializer.extend(chain.constants)
