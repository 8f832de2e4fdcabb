"""Room ``graph``: models that are quantised already (QDQ form) as float models. A model enters and is changed in place.

A weight w = (q - z) s is computed once. A QuantizeLinear with its DequantizeLinear on a computed tensor is the identity
up to rounding and clipping: it goes, and the range (qmin - z) s .. (qmax - z) s that it stood for is kept for
calibration, which then needs no other. An integer that the graph itself reads or gives is spelt in float operators:
Cast, Sub, Mul; Div, Round, Add, Clip, Cast. Faults leave where scales are computed, or types are not integers of 8 or
16 bits (of constants: 32 too).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import Fault
from npubake.graph.editing import attribute
from npubake.graph.naming import all_names, fresh_name
from npubake.graph.opset import STANDARD_DOMAINS

Array = NDArray[Any]
Ends = tuple[float, float]

_DOMAINS = (*STANDARD_DOMAINS, "com.microsoft")  # the runtime's own pair knows 16 bits in older opsets
_LINEAR = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul"))
_NORMS = frozenset(("BatchNormalization", "InstanceNormalization", "LayerNormalization"))
_LIMITS: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767),
}
_HINT = "give the float model that was quantised"


@dataclass(slots=True, kw_only=True)
class Dequantised:
    """removed: names of the pairs that went; ranges: tensor -> (low, high) that a pair stood for."""

    removed: list[str] = field(default_factory=list)
    ranges: dict[str, Ends] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """scale: float32; zero_point: int64, same shape; limits of the integer type; axis and block of shaped scales."""

    scale: Array
    zero_point: Array
    kind: int
    axis: int
    block: int

    @property
    def ends(self) -> Ends:
        low, high = _LIMITS[self.kind]
        scale, zero = float(self.scale.reshape(-1)[0]), int(self.zero_point.reshape(-1)[0])
        return (low - zero) * scale, (high - zero) * scale

    def spread(self, values: Array, shape: tuple[int, ...]) -> Array:
        """Scale or zero point in the shape of a tensor."""
        if values.size == 1:
            return np.broadcast_to(values.reshape(-1)[0], shape)
        axis = self.axis % len(shape)
        if self.block:
            return np.take(np.repeat(values, self.block, axis=axis), range(shape[axis]), axis=axis)
        return np.broadcast_to(values.reshape(-1, *(1,) * (len(shape) - axis - 1)), shape)

    def same(self, other: _Grid) -> bool:
        equal = np.array_equal(self.scale, other.scale) and np.array_equal(self.zero_point, other.zero_point)
        return equal and self.kind == other.kind and (self.scale.size == 1 or self.axis == other.axis)


def dequantise(model: onnx.ModelProto) -> Dequantised:
    """Spell ``model`` (one opset, named) in float, in place. What stands against it is in ``faults``."""
    found = Dequantised()
    if any(_is(node, "QuantizeLinear") or _is(node, "DequantizeLinear") for node in model.graph.node):
        _Speller(model, found).spell()
    return found


class _Speller:
    """One model being rewritten; nodes in their old order."""

    def __init__(self, model: onnx.ModelProto, found: Dequantised) -> None:
        self.model = model
        self.found = found
        self.names = all_names(model)
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            value = attribute(node, "value", None)
            if node.op_type == "Constant" and isinstance(value, TensorProto):
                self.constants[node.output[0]] = value
        self.makers = {name: node for node in model.graph.node for name in node.output if name}
        self.outputs = {value.name for value in model.graph.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.nodes: list[onnx.NodeProto] = []

    def spell(self) -> None:
        for node in self.model.graph.node:
            quantise, dequantise = _is(node, "QuantizeLinear"), _is(node, "DequantizeLinear")
            if not quantise and not dequantise:
                self.nodes.append(node)
                continue
            grid = self._grid(node)
            if isinstance(grid, Fault):
                self.found.faults.append(grid)
            elif dequantise:
                self._dequantise(node, grid)
            elif self._read_as_integer(node):
                self._quantise(node, grid)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        del self.model.graph.node[:]
        self.model.graph.node.extend(copies)

    def _grid(self, node: onnx.NodeProto) -> _Grid | Fault:
        scale = self._value(node.input[1])
        zero = self._value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        given = len(node.input) > 2 and bool(node.input[2])
        if scale is None or (given and zero is None):
            what = f"{node.op_type} with a scale or zero point that is computed"
            return Fault(what=what, where=node.name, hint=_HINT)
        kind = self.constants[node.input[2]].data_type if given else int(attribute(node, "output_dtype", 0))
        constant = self.constants.get(node.input[0])
        if _is(node, "DequantizeLinear") and constant is not None:
            kind = constant.data_type
        kind = kind or (TensorProto.UINT8 if _is(node, "QuantizeLinear") else self._kind(node.input[0]))
        if kind not in _LIMITS and not (kind in (TensorProto.INT32, TensorProto.INT4, TensorProto.UINT4) and constant):
            name = TensorProto.DataType.Name(kind) if kind else "an unknown type"
            return Fault(what=f"{node.op_type} of {name}", where=node.name, hint=_HINT)
        wide = np.zeros(scale.shape, np.int64) if zero is None else zero.astype(np.int64)
        return _Grid(
            scale=scale.astype(np.float32),
            zero_point=wide,
            kind=kind,
            axis=int(attribute(node, "axis", 1)),
            block=int(attribute(node, "block_size", 0)),
        )

    def _kind(self, tensor: str) -> int:
        """The integer type of a computed tensor, where a graph input or its QuantizeLinear tells."""
        for value in self.model.graph.input:
            if value.name == tensor:
                return int(value.type.tensor_type.elem_type)
        maker = self.makers.get(tensor)
        if maker is not None and _is(maker, "QuantizeLinear"):
            grid = self._grid(maker)
            return grid.kind if isinstance(grid, _Grid) else 0
        return int(TensorProto.UINT8)

    def _value(self, name: str) -> Array | None:
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def _dequantise(self, node: onnx.NodeProto, grid: _Grid) -> None:
        source, result = node.input[0], node.output[0]
        constant, maker = self._value(source), self.makers.get(source)
        if constant is not None:
            shift = constant.astype(np.int64) - grid.spread(grid.zero_point, constant.shape)
            self._put(result, shift.astype(np.float32) * grid.spread(grid.scale, constant.shape))
            return
        if maker is not None and _is(maker, "QuantizeLinear"):
            written = self._grid(maker)
            if isinstance(written, _Grid) and written.same(grid):
                self._join(node, maker, grid)
                return
        shape = _shaped(self.model, source, grid)
        if shape is None:
            what = "DequantizeLinear along an axis of a tensor whose rank is not stated"
            self.found.faults.append(Fault(what=what, where=node.name, hint=_HINT))
            return
        wide = self._step("Cast", [source], node, to=TensorProto.FLOAT)
        zero = self._constant(grid.zero_point.astype(np.float32).reshape(shape), node, "zero_point")
        scale = self._constant(grid.scale.reshape(shape), node, "scale")
        self._step("Mul", [self._step("Sub", [wide, zero], node), scale], node, result)

    def _join(self, node: onnx.NodeProto, maker: onnx.NodeProto, grid: _Grid) -> None:
        """DequantizeLinear of QuantizeLinear with one grid: the tensor itself, or a constant on the grid."""
        origin, result = maker.input[0], node.output[0]
        constant = self._value(origin)
        if constant is not None:
            zero, scale = (grid.spread(part, constant.shape) for part in (grid.zero_point, grid.scale))
            codes = np.clip(np.rint(constant.astype(np.float32) / scale) + zero, *_LIMITS[grid.kind])
            self._put(result, ((codes - zero).astype(np.float32) * scale).astype(np.float32))
            return
        if self._folded(origin, grid):
            limits = [self._constant(np.float32(end), node, "limit") for end in grid.ends]
            self.nodes.append(helper.make_node("Clip", [origin, *limits], [result], name=node.name))
        else:
            self.nodes.append(helper.make_node("Identity", [origin], [result], name=node.name))
        self.found.removed.append(node.name)
        if grid.scale.size == 1:
            low, high = self.found.ranges.get(origin, grid.ends)
            self.found.ranges[origin] = min(low, grid.ends[0]), max(high, grid.ends[1])

    def _folded(self, tensor: str, grid: _Grid) -> bool:
        """Whether the grid stands for a Relu or Clip that a quantiser took away: it begins at 0 behind an operator
        that has negative results (ONNX Runtime's quantiser does so).
        """
        maker = self.makers.get(tensor)
        return grid.scale.size == 1 and grid.ends[0] == 0 and maker is not None and maker.op_type in _LINEAR | _NORMS

    def _read_as_integer(self, node: onnx.NodeProto) -> bool:
        """Whether anything but a DequantizeLinear of the same grid reads what this QuantizeLinear makes."""
        codes, grid = node.output[0], self._grid(node)
        if codes in self.outputs or not isinstance(grid, _Grid):
            return True
        others = [self._grid(each) for each in self.readers.get(codes, ()) if _is(each, "DequantizeLinear")]
        same = [other for other in others if isinstance(other, _Grid) and other.same(grid)]
        return len(same) < len(self.readers.get(codes, ()))

    def _quantise(self, node: onnx.NodeProto, grid: _Grid) -> None:
        shape = _shaped(self.model, node.input[0], grid)
        if shape is None:
            what = "QuantizeLinear along an axis of a tensor whose rank is not stated"
            self.found.faults.append(Fault(what=what, where=node.name, hint=_HINT))
            return
        scale = self._constant(grid.scale.reshape(shape), node, "scale")
        zero = self._constant(grid.zero_point.astype(np.float32).reshape(shape), node, "zero_point")
        low, high = (self._constant(np.float32(end), node, "limit") for end in _LIMITS[grid.kind])
        steps = self._step("Round", [self._step("Div", [node.input[0], scale], node)], node)
        codes = self._step("Clip", [self._step("Add", [steps, zero], node), low, high], node)
        self._step("Cast", [codes], node, node.output[0], to=grid.kind)

    def _put(self, name: str, value: Array) -> None:
        """A constant called ``name``; a graph output needs a node that makes it."""
        wish = fresh_name(f"{name}/constant", self.names) if name in self.outputs else name
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), wish)
        self.model.graph.initializer.append(tensor)
        self.constants[name] = tensor
        if wish != name:
            identity = fresh_name(f"{name}/Identity", self.names)
            self.nodes.append(helper.make_node("Identity", [wish], [name], name=identity))

    def _constant(self, value: Array | np.float32, node: onnx.NodeProto, word: str) -> str:
        name = fresh_name(f"{node.name}/{word}", self.names)
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _step(self, kind: str, inputs: list[str], node: onnx.NodeProto, result: str = "", **attributes: Any) -> str:
        name = fresh_name(f"{node.name}/{kind}", self.names)
        result = result or fresh_name(f"{name}_output", self.names)
        self.nodes.append(helper.make_node(kind, inputs, [result], name=name, **attributes))
        return result


def _shaped(model: onnx.ModelProto, tensor: str, grid: _Grid) -> tuple[int, ...] | None:
    """The shape in which scales along an axis meet ``tensor``; () for one scale, None where the rank is not known."""
    if grid.scale.size == 1:
        return ()
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        if value.name == tensor and value.type.tensor_type.HasField("shape") and not grid.block:
            rank = len(value.type.tensor_type.shape.dim)
            return (-1, *(1,) * (rank - 1 - grid.axis % rank))
    return None


def _is(node: onnx.NodeProto, kind: str) -> bool:
    return node.op_type == kind and node.domain in _DOMAINS
