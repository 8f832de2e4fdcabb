"""Qualcomm toolchain: operations and grids -> a QDQ graph in node units. onnx nodes leave.

A node unit is what the compiler reads as one operator in integers: DequantizeLinear on each operand, the node,
QuantizeLinear on each result. A tensor ``t`` has its codes ``t/quantized`` and what readers see, ``t/dequantized``.
An operation computes in the widest type of what it reads and makes; narrower operands are converted on their edge, to
the same range in 16 bits (``t/as_uint16``), and so is a result whose own grid is narrower (``t/wide``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.int4 import int4_tensor
from npubake.graph.naming import fresh_name
from npubake.quant.weights import quantize_bias
from npubake.toolchains.qualcomm.adapting.constants import constant_codes
from npubake.toolchains.qualcomm.adapting.deciding import floats_of, is_movement
from npubake.toolchains.qualcomm.adapting.grids import Bits, Grid, as_wide, set_apart
from npubake.toolchains.qualcomm.adapting.operations import BIAS_MOST, EncodedWeights, Operation
from npubake.toolchains.qualcomm.adapting.operators import WITH_BIAS, constant_bits, demanded_grid, value_slots


@dataclass(slots=True, kw_only=True)
class UnitWriter:
    """The QDQ graph while it is written. grids: of tensors; floats: computed float32 tensors; values: of float32
    initialisers; outputs: of the graph; names: all that are taken.
    """

    grids: Mapping[str, Grid]
    floats: frozenset[str]
    values: Mapping[str, NDArray[Any]]
    outputs: frozenset[str]
    names: set[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    codes: dict[str, str] = field(default_factory=dict)  # tensor -> its integers
    views: dict[tuple[str, Grid], str] = field(default_factory=dict)  # (tensor, grid) -> what readers see
    float_view: dict[str, str] = field(default_factory=dict)  # tensor -> what float operations see
    wide_weights: bool = False  # of a lane with 16-bit weights
    oldest: bool = False  # for v68, which takes no other bias of a normalisation than an int32
    unrounded: frozenset[str] = frozenset()  # tensors with a grid whose readers see what their maker writes
    written: dict[str, Grid] = field(default_factory=dict)  # operands that are constants, by name, for the record

    def add_input(self, name: str) -> None:
        """A float32 input of the graph: its quantiser, where it has a grid."""
        if name in self.grids:
            self._quantise(name, name)

    def add(self, operation: Operation) -> None:
        """A node with its operands as it reads them and its results as their readers see them."""
        if operation.converts:
            source = operation.node.input[0]
            self._quantise(operation.node.output[0], self.views[source, self.grids[source]])
            return
        node = onnx.NodeProto()
        node.CopyFrom(operation.node)
        own = self._grid_of_unit(operation)
        if operation.integer:
            self._read_integers(operation, node, own)
        else:
            for slot, name in enumerate(node.input):
                node.input[slot] = self.float_view.get(name, name)
        for slot, name in enumerate(node.output):
            if name in self.outputs and name in self.grids:
                node.output[slot] = self._fresh(f"{name}/float")
        self.nodes.append(node)
        for name, raw in zip(operation.node.output, node.output, strict=True):
            if name in self.grids and name not in self.unrounded:
                self._quantise(name, self._made(operation, name, raw, own))

    def finish(self) -> None:
        """Give the quantised outputs of the graph their names: a DequantizeLinear of their own."""
        for name in sorted(self.outputs & self.codes.keys()):
            self._dequantise(self.codes[name], self.grids[name], name, f"{name}/ToOutput")

    def _grid_of_unit(self, operation: Operation) -> tuple[Bits, Grid | None]:
        """The bits that an integer operation computes in, and the one grid of a movement."""
        held = [self.grids[name] for name in floats_of(operation, self.floats) if name in self.grids]
        bits = max((each.bits for each in held), default=operation.bits)
        bits = max(bits, operation.bits)
        made = [self.grids[name] for name in operation.node.output if name in self.grids]
        return bits, made[0] if made and is_movement(operation) else None

    def _read_integers(self, operation: Operation, node: onnx.NodeProto, own: tuple[Bits, Grid | None]) -> None:
        bits, shared = own
        slots = value_slots(node.op_type, len(node.input))
        weights = operation.weights
        for slot, name in enumerate(operation.node.input):
            if weights is not None and slot == 1:
                node.input[slot] = self._weights(weights)
            elif weights is not None and slot == 2:
                source = self._read_grid(operation.node.input[0], bits, weights)
                node.input[slot] = self._bias(weights, source.scale)
            elif slot in slots and name in self.grids and name not in self.unrounded:
                grid = shared or self._read_grid(name, bits, weights)
                node.input[slot] = self._view(name, set_apart(grid) if operation.apart else grid)
            elif slot in slots and name in self.values:
                node.input[slot] = self._constant(operation, slot, bits, shared)
            elif name in self.float_view:
                node.input[slot] = self.float_view[name]

    def _constant(self, operation: Operation, slot: int, bits: Bits, shared: Grid | None) -> str:
        """A constant operand. A normalisation's bias is an int32 beside 8-bit factors at 16 bits, where that is more
        exact, and on v68; at 8 bits it loses: 36.1 dB of a ViT became 31.6.
        """
        node, name = operation.node, operation.node.input[slot]
        width = constant_bits(node.op_type, slot, bits, wide_weights=self.wide_weights)
        biased = (bits == 16 and not self.wide_weights) or self.oldest
        if node.op_type in WITH_BIAS and slot == 2 and biased and node.input[1] in self.values:
            factor = constant_codes(self.values[node.input[1]], 8)[1].scale
            step = self._read_grid(node.input[0], bits).scale * factor
            return self._dequantised_bias(f"{node.name}/{name}", self.values[name], np.array([step]))
        return self._constant_operand(name, width, shared)

    def _read_grid(self, name: str, bits: Bits, weights: EncodedWeights | None = None) -> Grid:
        """The grid that an operation of ``bits`` reads a tensor on; by the same codes where the finer steps of the wide
        form would take a bias beyond int32.
        """
        held = self.grids[name]
        if bits == held.bits:
            return held
        wide = as_wide(held)
        fits = weights is None or weights.largest_bias(wide.scale) <= BIAS_MOST
        return wide if fits else replace(held, dtype="uint16")

    def _made(self, operation: Operation, name: str, raw: str, own: tuple[Bits, Grid | None]) -> str:
        """What the quantiser of ``name`` reads of its maker's result ``raw``."""
        if not operation.integer:
            half, rounded = self._fresh(f"{name}/float16"), self._fresh(f"{name}/rounded")
            self._node("Cast", [raw], [half], f"{name}/ToFloat16", to=TensorProto.FLOAT16)
            self._node("Cast", [half], [rounded], f"{name}/FromFloat16", to=TensorProto.FLOAT)
            self.float_view[name] = rounded
            return rounded
        held, demanded = self.grids[name], demanded_grid(operation.node.op_type, own[0])
        wanted = demanded or (as_wide(held) if own[0] > held.bits else held)
        return raw if wanted.equals(held) else self._through(raw, wanted, f"{name}/wide")

    def _quantise(self, name: str, source: str) -> None:
        grid = self.grids[name]
        codes = self._fresh(f"{name}/quantized")
        self._node("QuantizeLinear", [source, *self._steps(grid)], [codes], f"{name}/QuantizeLinear")
        self.codes[name] = codes
        seen = self._fresh(f"{name}/dequantized")
        self.views[name, grid] = seen
        self._dequantise(codes, grid, seen, f"{name}/DequantizeLinear")
        self.float_view.setdefault(name, seen)

    def _view(self, name: str, grid: Grid) -> str:
        """What readers on ``grid`` see of a quantised tensor."""
        own = self.grids[name]
        if grid.equals(own):
            return self.views[name, own]
        if (name, grid) not in self.views:
            self.views[name, grid] = self._through(self.views[name, own], grid, f"{name}/as_{grid.dtype}")
        return self.views[name, grid]

    def _through(self, source: str, grid: Grid, wish: str) -> str:
        codes, seen = self._fresh(f"{wish}/quantized"), self._fresh(f"{wish}/dequantized")
        self._node("QuantizeLinear", [source, *self._steps(grid)], [codes], f"{wish}/QuantizeLinear")
        self._dequantise(codes, grid, seen, f"{wish}/DequantizeLinear")
        return seen

    def _dequantise(self, codes: str, grid: Grid, result: str, wish: str) -> None:
        self._node("DequantizeLinear", [codes, *self._steps(grid)], [result], wish)

    def _constant_operand(self, name: str, bits: Bits, shared: Grid | None) -> str:
        codes, grid = constant_codes(self.values[name], bits, shared)
        if (name, grid) not in self.views:
            self.written[name] = grid
            stored = self._store(f"{name}/quantized", codes)
            self.views[name, grid] = self._fresh(f"{name}/dequantized")
            self._dequantise(stored, grid, self.views[name, grid], f"{name}/DequantizeLinear")
        return self.views[name, grid]

    def _weights(self, weights: EncodedWeights) -> str:
        """Codes with a scale a channel, or one for all, and zero points always: without them the compiler takes 4-bit
        weights for something else and says nothing.
        """
        name, channels = weights.initializer, len(weights.scales)
        per_tensor = weights.per_tensor
        scales = weights.scales[:1].reshape(()) if per_tensor else weights.scales
        zeros = np.full(() if per_tensor else channels, weights.zero_point)
        inputs = [
            self._integers(f"{name}/quantized", weights.codes, weights.dtype),
            self._store(f"{name}/scale", scales.astype(np.float32)),
            self._integers(f"{name}/zero_point", zeros, weights.dtype),
        ]
        result = self._fresh(f"{name}/dequantized")
        attributes = {} if per_tensor else {"axis": weights.axis}
        self._node("DequantizeLinear", inputs, [result], f"{name}/DequantizeLinear", **attributes)
        return result

    def _bias(self, weights: EncodedWeights, source_scale: float) -> str:
        """int32 codes of scale (input scale * weight scale), one a channel."""
        assert weights.bias is not None
        steps = source_scale * (weights.scales[:1] if weights.per_tensor else weights.scales)
        return self._dequantised_bias(weights.bias_name, weights.bias, steps)

    def _dequantised_bias(self, name: str, bias: NDArray[np.float32], steps: NDArray[np.float64]) -> str:
        """int32 codes of one step for all, or one a channel, with a DequantizeLinear."""
        per_tensor = len(steps) == 1
        stored = self._store(f"{name}/quantized", quantize_bias(bias, np.broadcast_to(steps, bias.shape)))
        scale = self._store(f"{name}/scale", (steps.reshape(()) if per_tensor else steps).astype(np.float32))
        zeros = np.zeros(() if per_tensor else len(steps), np.int32)
        result = self._fresh(f"{name}/dequantized")
        attributes = {} if per_tensor else {"axis": 0}
        inputs = [stored, scale, self._store(f"{name}/zero_point", zeros)]
        self._node("DequantizeLinear", inputs, [result], f"{name}/DequantizeLinear", **attributes)
        return result

    def _steps(self, grid: Grid) -> tuple[str, str]:
        """Names of scale and zero point: one pair for each grid."""
        key = f"grid/{grid.dtype}/{np.float32(grid.scale).view(np.uint32):08x}/{grid.zero_point}"
        pair = (f"{key}/scale", f"{key}/zero_point")
        if pair[0] not in self.names:
            self.names.update(pair)
            self.constants.append(numpy_helper.from_array(np.array(grid.scale, np.float32), pair[0]))
            self.constants.append(numpy_helper.from_array(np.array(grid.zero_point, grid.dtype), pair[1]))
        return pair

    def _integers(self, wish: str, codes: NDArray[Any], dtype: str) -> str:
        if dtype != "int4":
            return self._store(wish, codes.astype(dtype))
        name = self._fresh(wish)
        self.constants.append(int4_tensor(codes, name))
        return name

    def _store(self, wish: str, value: NDArray[Any]) -> str:
        name = self._fresh(wish)
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def _node(self, op_type: str, inputs: list[str], outputs: list[str], wish: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=self._fresh(wish), **attributes))

    def _fresh(self, wish: str) -> str:
        return fresh_name(wish, self.names)
