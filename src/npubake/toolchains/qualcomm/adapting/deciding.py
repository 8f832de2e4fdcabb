"""Qualcomm toolchain: the grid of every float32 tensor that an integer operation reads or makes. No onnx is written.

From the parameters where they have it; from the tensor that it is copied from; as the HTP demands or mathematics gives
it; from what was observed. A tensor that two of these would settle takes the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from npubake.calibration.statistics import TensorStatistics
from npubake.errors import Fault, StageError
from npubake.graph.editing import attribute
from npubake.quant.parameters import QuantizationParameters
from npubake.quant.ranges import including_zero, union
from npubake.toolchains.qualcomm.adapting.grids import Bits, Grid, of_parameters, of_range, of_statistics
from npubake.toolchains.qualcomm.adapting.operations import Operation, Spelling
from npubake.toolchains.qualcomm.adapting.operators import MOVERS, demanded_grid, known_grid, value_slots

_LEAST_BITS: Bits = 8


@dataclass(slots=True, kw_only=True)
class GridTable:
    """The grids as they are decided. floats: every computed float32 tensor and input; statistics: what was observed."""

    spelling: Spelling
    floats: frozenset[str]
    parameters: QuantizationParameters | None
    statistics: Mapping[str, TensorStatistics]
    made: dict[str, Grid] = field(default_factory=dict)

    def decide(self) -> dict[str, Grid]:
        """Raises StageError with every tensor of which nothing is known."""
        faults = []
        makers = {name: each for each in self.spelling.operations for name in each.node.output if name}
        needed = self._needed()
        for name, bits in needed.items():
            grid = self._grid(name, bits, makers.get(name))
            if grid is None:
                faults.append(Fault(what=f"no statistics of tensor {name!r}", hint="observe this graph again"))
            else:
                self.made[name] = grid
        if faults:
            raise StageError(*faults)
        return self.made

    def _needed(self) -> dict[str, Bits]:
        """Tensors that integer operations read or make, in order of computation, with the bits asked of them."""
        made_with: dict[str, Bits] = {}
        read_with: dict[str, Bits] = {}
        order: dict[str, None] = {}
        for operation in self.spelling.operations:
            order.update(dict.fromkeys(operation.node.input))
            order.update(dict.fromkeys(operation.node.output))
            if not operation.integer:
                continue
            for name in operand_values(operation):
                read_with[name] = max(operation.bits, read_with.get(name, _LEAST_BITS))
            made_with.update(dict.fromkeys(operation.node.output, operation.bits))
        asked = {**read_with, **made_with}
        return {name: asked[name] for name in order if name in asked and name in self.floats}

    def _grid(self, name: str, bits: Bits, maker: Operation | None) -> Grid | None:
        integer = maker is not None and maker.integer
        demanded = demanded_grid(maker.node.op_type, bits) if maker is not None and integer else None
        if name in self.spelling.grids:
            return self.spelling.grids[name]
        held = self.parameters.tensors.get(name) if self.parameters is not None else None
        if held is not None:
            if maker is not None and integer and maker.node.op_type == "Resize" and not self._copied_further(name):
                source = self.made.get(maker.node.input[0])
                if source is not None and source.dtype == of_parameters(held).dtype:
                    return source
            alone = demanded is not None and held.dtype == "int16" and not self._copied_further(name)
            return demanded if alone else of_parameters(held)
        like = self.spelling.like.get(name)
        if like is not None:
            return self._grid(like, bits, None)
        if maker is not None and integer and (copied := self._copied_from(maker, bits)) is not None:
            return copied
        if name in self.spelling.ranges:
            return of_range(self.spelling.ranges[name], bits, "fixed")
        if maker is not None and integer and (demanded or name not in self.statistics):
            return demanded or known_grid(maker.node.op_type, bits)
        seen = self.statistics.get(name)
        return None if seen is None else of_statistics(including_zero(seen.minimum, seen.maximum), bits)

    def _copied_from(self, maker: Operation, bits: Bits) -> Grid | None:
        """The grid of what a movement copies; over the ranges of several sources where they differ."""
        if not is_movement(maker) or attribute(maker.node, "mode", "") == "cubic":  # which leaves its input's range
            return None
        held = [self.made[name] for name in operand_values(maker) if name in self.made]
        if not held or len(held) != len([name for name in operand_values(maker) if name in self.floats]):
            return None
        if all(each.equals(held[0]) for each in held):
            return held[0]
        return of_range(
            union(each.span for each in held), max((each.bits for each in held), default=bits), "statistics"
        )

    def _copied_further(self, name: str) -> bool:
        return any(each.integer and is_movement(each) for each in self.spelling.readers().get(name, ()))


def operand_values(operation: Operation) -> list[str]:
    """Operands that hold values; constants among them."""
    names = list(operation.node.input)
    return [names[slot] for slot in value_slots(operation.node.op_type, len(names)) if names[slot]]


def is_movement(operation: Operation) -> bool:
    """Whether both what it makes and what it reads lie on one grid: copied, or (v68 takes no other) resized."""
    return operation.node.op_type in MOVERS or operation.node.op_type == "Resize"


def floats_of(operation: Operation, floats: frozenset[str]) -> Iterator[str]:
    """Its operands and results that are computed float32 tensors."""
    yield from (name for name in operand_values(operation) if name in floats)
    yield from (name for name in operation.node.output if name in floats)
