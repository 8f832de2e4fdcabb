"""Qualcomm toolchain: MatMul of two computed tensors at 16 bits, as the HTP computes it best. Operations are edited.

The HTP takes 8 bits of the second operand, without a word: it is rounded to int8 steps over the symmetric range of its
grid (QNN 2.51.0, v68 to v75: 42 dB of two uniform tensors, beside 82 dB of the QDQ model). So that range is made no
wider than what was seen, and its steps such that those of int8 are whole ones of 16 bits: scale = absmax / 0x7F7F,
where 0x7F7F = 127 * 257 (48 dB; the SDK's ``--restrict_quantization_steps "-0x8000 0x7F7F"``).
In a lane of 16-bit weights, which asks for 16 bits at any cost, the second operand is the sum of two that have 8 bits
each, coarse = 257 * round(y / 257) and rest = y - coarse: x * y = x * coarse + x * rest (79 dB, by two products).
(tests/qualcomm/test_operators.py)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from npubake.calibration.statistics import TensorStatistics
from npubake.graph.naming import fresh_name
from npubake.graph.summary import GraphSummary
from npubake.quant.ranges import DEAD_BELOW, including_zero
from npubake.quant.tensor_ranges import WIDE_MARGIN
from npubake.toolchains.qualcomm.adapting.deciding import is_movement, operand_values
from npubake.toolchains.qualcomm.adapting.grids import Grid
from npubake.toolchains.qualcomm.adapting.operations import Form, Operation, Spelling
from npubake.toolchains.qualcomm.adapting.operators import known_grid

_INT8 = 127
_STEPS = 257  # of 16 bits in one of int8
_MOST = _INT8 * _STEPS  # 0x7F7F
_MIDDLE, _MIDDLE_8 = 2**15, 2**7  # zero points
_REST = (_STEPS + 1) / 2  # 16-bit steps that rounding to int8 leaves at most, and one's half of the operand's own
_TOLERANCE = 2.0**-8  # relative, of a margin: ranges are snapped outward


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """What they are computed of. grids: of all tensors, to which those of new ones are added; statistics: what was
    observed; names: all that are taken; twice: whether the second operand keeps 16 bits.
    """

    spelling: Spelling
    grids: dict[str, Grid]
    summary: GraphSummary
    statistics: Mapping[str, TensorStatistics]
    names: set[str]
    twice: bool

    def spell(self) -> frozenset[str]:
        """Edit the operations; answers the new tensors' names."""
        known, operations = set(self.grids), list[Operation]()
        for operation in self.spelling.operations:
            operations += self._spelt(operation) if self._wide_product(operation) else [operation]
        self.spelling.operations = operations
        return frozenset(self.grids.keys() - known)

    def _wide_product(self, operation: Operation) -> bool:
        """Whether both operands are computed, and one of the three tensors has 16 bits."""
        node = operation.node
        if node.op_type != "MatMul" or not operation.integer or not self.grids.keys() >= set(node.input):
            return False
        held = [self.grids[name].bits for name in (*node.input, *node.output) if name in self.grids]
        return max(operation.bits, *held) == 16

    def _spelt(self, operation: Operation) -> Iterator[Operation]:
        node, second = operation.node, operation.node.input[1]
        scale = float(np.float32(self._absmax(second) / _MOST))
        if self.twice and node.output[0] in self.grids:
            self._say(node, "MatMul as two, of the upper and the lower bits of its second operand")
            yield from self._two_products(node, scale)
        elif chain := self._chain(second):
            self._say(node, f"{second} in steps of absmax / 0x7F7F")
            self.grids.update(dict.fromkeys(chain, _symmetric(scale)))
            yield operation
        else:
            self._say(node, f"{second} converted to steps of absmax / 0x7F7F")
            narrow = self._tensor(f"{node.name}/second", _symmetric(scale))
            yield _converted(second, narrow)
            made = helper.make_node("MatMul", [node.input[0], narrow], list(node.output), name=node.name)
            yield replace(operation, node=made)

    def _two_products(self, node: onnx.NodeProto, scale: float) -> Iterator[Operation]:
        name, (first, second), result = node.name, node.input, node.output[0]
        eight = Grid(dtype="uint8", scale=float(np.float32(scale * _STEPS)), zero_point=_MIDDLE_8, by="fixed")
        rounded, coarse = self._tensor(f"{name}/rounded", eight), self._tensor(f"{name}/coarse", _symmetric(scale))
        most = scale * _REST
        rest = self._tensor(f"{name}/rest", _symmetric(most / _MOST))
        upper = self._tensor(f"{name}/upper", self.grids[result])
        most *= self.grids[first].span.absmax * self.summary.tensors[first].shape[-1]
        lower = self._tensor(f"{name}/lower", _symmetric(most / _MOST))
        yield _converted(second, rounded)
        yield _converted(rounded, coarse)
        yield _computed("Sub", [second, coarse], rest)
        yield _computed("MatMul", [first, coarse], upper)
        yield _computed("MatMul", [first, rest], lower)
        yield _computed("Add", [upper, lower], result, name)

    def _tensor(self, wish: str, grid: Grid) -> str:
        """A new tensor on a grid."""
        name = fresh_name(wish, self.names)
        self.grids[name] = grid
        return name

    def _chain(self, second: str) -> tuple[str, ...]:
        """What lies on the grid of the operand for this product alone: from an operator's result through movements;
        () where something else reads of it, or settled its grid. (Converted, a ViT takes a quarter more cycles.)
        """
        makers = {name: each for each in self.spelling.operations for name in each.node.output}
        readers, held, found = self.spelling.readers(), self.grids[second], [second]
        while self._free(found[-1], held) and len(readers[found[-1]]) == 1:
            maker = makers.get(found[-1])
            if maker is None or not maker.integer:
                break
            if not is_movement(maker):
                return tuple(found) if known_grid(maker.node.op_type, 16) is None else ()
            sources = operand_values(maker)
            if len(sources) > 1 or len(maker.node.output) > 1:
                break
            found += sources
        return ()

    def _free(self, name: str, held: Grid) -> bool:
        """Whether a tensor of 16 bits lies on the operand's grid, which nothing but the product is bound to."""
        bound = name in self.spelling.clipping or name in self.summary.outputs or name not in self.grids
        return not bound and held.bits == 16 and self.grids[name].equals(held)

    def _absmax(self, name: str) -> float:
        """Of a tensor: what its grid reaches, but for the margin that 16 bits have room for and 8 have not."""
        reached, seen = self.grids[name].span.absmax, self.statistics.get(name)
        if seen is not None:
            observed = including_zero(seen.minimum, seen.maximum).absmax
            if math.isclose(reached, WIDE_MARGIN * observed, rel_tol=_TOLERANCE):
                reached = observed
        return max(reached, DEAD_BELOW)

    def _say(self, node: onnx.NodeProto, what: str) -> None:
        why = "of the second of two computed operands the HTP takes 8 bits"
        self.spelling.forms.append(Form(node=node.name, what=what, why=why))


def _symmetric(scale: float) -> Grid:
    return Grid(dtype="uint16", scale=float(np.float32(scale)), zero_point=_MIDDLE, by="fixed")


def _converted(source: str, result: str) -> Operation:
    """A tensor on the grid of ``result``."""
    node = helper.make_node("Identity", [source], [result], name=result)
    return Operation(node=node, integer=True, converts=True)


def _computed(op_type: str, operands: list[str], result: str, name: str = "") -> Operation:
    """At 16 bits."""
    node = helper.make_node(op_type, operands, [result], name=name or result)
    return Operation(node=node, integer=True, bits=16)
