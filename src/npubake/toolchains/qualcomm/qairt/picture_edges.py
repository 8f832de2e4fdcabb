"""Qualcomm toolchain, SDK road: the nodes between the bytes that a board feeds and a model's input, before a converter.

In integers the picture is a float32 input of pixel values whose encoding has their own step and offset 0, so that its
codes are the bytes; every node behind it has the encoding of ``adapt``'s QDQ model (adapting/pixels.py). In float it
is a uint8 input and a Cast, which the HTP compiles. docs/decisions/0020 says why.

  rgb, bgr   [N, H, W, 3] -> Transpose -> 1 x 1 Conv -> the model's input
  gray       [N, 1, H, W] -> 1 x 1 Conv -> the model's input

The convolution is the linear step, (p / divide_by - mean) / std, its weights a power of two of codes; it is left out
where the bytes are the input's codes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.fixedpoint.colour import RuntimeInput
from npubake.graph.inference import infer_shapes, static_shape
from npubake.graph.naming import all_names
from npubake.toolchains.qualcomm.qairt.commands import Conversion
from npubake.toolchains.qualcomm.qairt.encodings import (
    Encoding,
    Encodings,
    extended,
    float_encoding,
    offset,
    tensor_encoding,
)
from npubake.toolchains.qualcomm.qairt.naming import PICTURES
from npubake.toolchains.qualcomm.qairt.sdk import Converter

_CODE = 64  # of a weight: a power of two, so that step * code is exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What the converter is given. encodings: None where nothing is quantised."""

    model: onnx.ModelProto
    encodings: Encodings | None


def pictures(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Inputs of the binary that take bytes of a picture. record: ``adapt``'s."""
    return tuple(name for name, entry in record["inputs"].items() if entry["kind"] in PICTURES)


def lines(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of ``pictures`` that are [N, H, W, C]."""
    return tuple(name for name in pictures(record) if record["inputs"][name]["kind"] != "gray")


def fed_model(model: onnx.ModelProto, encodings: Encodings | None, record: Mapping[str, Any]) -> Fed:
    """``model`` (untouched) with the pictures of ``record`` in place of its inputs, and the encodings of both.

    record: ``adapt``'s. The input's own name is the picture's from here on; what it was goes on as ``<input>/fed``.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for name in pictures(record):
        edge = _Edge(
            name=name,
            spec=RuntimeInput.from_facts(name, record["runtime_inputs"][name]),
            layout=record["runtime_inputs"][name]["layout"],
            pixels=record["inputs"][name],
            held=None if encodings is None else _held(name, encodings),
            integer=encodings is not None,
        )
        chain = _chain(edge, all_names(made))
        _put_in_place(made, edge, chain)
        if encodings is not None:
            encodings = extended(encodings, {name: chain.seen}, chain.activations, chain.weights)
    return Fed(model=infer_shapes(made), encodings=encodings)


def conversion_of(fed: Fed, record: Mapping[str, Any], *, converter: Converter, version: str, io: str) -> Conversion:
    """What the tools are told of a model that ``fed_model`` made. record: ``adapt``'s."""
    shapes = {value.name: list(static_shape(value) or ()) for value in fed.model.graph.input}
    return Conversion(
        converter=converter,
        version=version,
        inputs=shapes,
        outputs=[value.name for value in fed.model.graph.output],
        encodings=fed.encodings,
        io=io,
        pictures=pictures(record),
        lines=lines(record),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """One picture. layout: of the model's input; pixels: of ``adapt``'s record of inputs (shape, scale); held: the
    encoding of the model's input; integer: whether anything of the model has one.
    """

    name: str
    spec: RuntimeInput
    layout: str
    pixels: Mapping[str, Any]
    held: Encoding | None
    integer: bool

    @property
    def bytes_are_codes(self) -> bool:
        """Whether the codes of the model's input are the bytes."""
        spec, held = self.spec, self.held
        plain = spec.mean is None and spec.std is None and spec.type == spec.channels
        if not plain or held is None:
            return False
        return (held.bits, np.float32(held.scales[0]), held.offsets) == (8, np.float32(self.pixels["scale"]), (0,))


@dataclass(slots=True)
class _Chain:
    """Nodes behind one picture, each reading the last one's result, and what their tensors hold."""

    seen: str
    taken: set[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    activations: list[Encoding] = field(default_factory=list)
    weights: list[Encoding] = field(default_factory=list)

    def add(self, op_type: str, name: str, *operands: str, **attributes: Any) -> None:
        name = self.free(name)
        self.nodes.append(helper.make_node(op_type, [self.seen, *operands], [name], name=name, **attributes))
        self.seen = name

    def turn(self, name: str, perm: list[int], held: Encoding) -> None:
        """A Transpose, whose operand and result hold the same."""
        self.hold(held)
        self.add("Transpose", name, perm=perm)

    def hold(self, held: Encoding) -> None:
        """The encoding of the last result."""
        self.activations.append(replace(held, name=self.seen))

    def constant(self, name: str, value: NDArray[np.float32]) -> str:
        name = self.free(name)
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def free(self, name: str) -> str:
        """``name``, or it with as many _ behind it as no other has."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _chain(edge: _Edge, taken: set[str]) -> _Chain:
    """The last tensor's encoding is the model input's; of all before it they are made here."""
    name, chain = edge.name, _Chain(seen=edge.name, taken=taken)
    pixels = tensor_encoding(name, "uint8", float(edge.pixels["scale"]), int(edge.pixels["zero_point"]))
    line, before = edge.spec.type != "gray", pixels
    steps = not (edge.integer and edge.bytes_are_codes)
    if not edge.integer:
        chain.add("Cast", f"{name}/pixels", to=TensorProto.FLOAT)
    if line and (steps or edge.layout == "NCHW"):
        chain.turn(f"{name}/planar", [0, 3, 1, 2], before)
        line = False
    if steps:
        chain.hold(before)
        _linear_step(chain, edge)
        before = replace(edge.held, name=name) if edge.held else float_encoding(name, "float16")
    if not line and edge.layout == "NHWC":
        chain.turn(f"{name}/line", [0, 2, 3, 1], before)
    if not edge.integer:
        chain.activations.clear()
    elif chain.seen == name:
        chain.hold(pixels)
    return chain


def _linear_step(chain: _Chain, edge: _Edge) -> None:
    """(p / divide_by - mean) / std of planar pixels, channels in the model's order; p / scale of plain bytes."""
    spec, scale = edge.spec, float(edge.pixels["scale"])
    count = 1 if spec.channels == "gray" else 3
    mean, std = (np.array(values or [neutral] * count) for values, neutral in ((spec.mean, 0.0), (spec.std, 1.0)))
    # What reads codes of a Cast multiplies by the bytes' scale itself; what has an encoding is real already.
    factors = 1.0 / ((spec.divide_by or 1) * std) / (scale if edge.integer else 1.0)
    order = np.eye(count) if spec.type == spec.channels else np.eye(count)[::-1]
    weights = (order * factors[:, None]).astype(np.float32)[..., None, None]
    names = (
        chain.constant(f"{edge.name}/weights", np.ascontiguousarray(weights)),
        chain.constant(f"{edge.name}/bias", (-mean / std).astype(np.float32)),
    )
    chain.add("Conv", f"{edge.name}/linear_step", *names)
    if edge.integer:
        scales = tuple(float(step) for step in (np.abs(factors) / _CODE).astype(np.float32))
        chain.weights.append(
            Encoding(name=names[0], bits=8, scales=scales, offsets=(offset("int8", 0),) * count, per_channel=True)
        )


def _held(name: str, encodings: Encodings) -> Encoding | None:
    """The integers of an input; None where it stays in float."""
    return next((entry for entry in encodings.activations if entry.name == name and entry.scales), None)


def _put_in_place(model: onnx.ModelProto, edge: _Edge, chain: _Chain) -> None:
    """Let what reads the input read the chain's last result; the input takes the picture's form."""
    for node in model.graph.node:
        for slot, read in enumerate(node.input):
            if read == edge.name:
                node.input[slot] = chain.seen
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend([*chain.nodes, *nodes])
    model.graph.initializer.extend(chain.constants)
    value = next(entry for entry in model.graph.input if entry.name == edge.name)
    kind = TensorProto.FLOAT if edge.integer else TensorProto.UINT8
    value.CopyFrom(helper.make_tensor_value_info(edge.name, kind, list(edge.pixels["shape"])))
