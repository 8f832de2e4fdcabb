"""Qualcomm toolchain: the nodes of the adapted graph before their quantisers are written. Plain data of onnx nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.quant.parameters import WeightType
from npubake.quant.ranges import Range
from npubake.toolchains.qualcomm.adapting.grids import Bits, Grid

BIAS_MOST = 2**31 - 2  # of an int32, rounded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedWeights:
    """A constant operand in integers. codes: of ``dtype`` (int4 in int8), in the shape of the operand; scales: float64,
    one a channel along ``axis``; zero_point: of all channels. bias: float32 [channels] at slot 2, or None.
    """

    initializer: str
    dtype: WeightType
    axis: int
    codes: NDArray[Any]
    scales: NDArray[np.float64]
    zero_point: int = 0
    bias_name: str = ""
    bias: NDArray[np.float32] | None = None

    def largest_bias(self, source_scale: float) -> float:
        """The largest |code| of the bias beside inputs of a scale."""
        if self.bias is None:
            return 0.0
        steps = source_scale * self.scales
        rows = np.abs(self.bias.astype(np.float64)).reshape(-1, len(steps)) / steps
        return float(rows.max(initial=0.0))

    @property
    def per_tensor(self) -> bool:
        """One scale for all: with a zero point, and where a grouped ConvTranspose has one channel a group (its bias
        would have more scales than its weights, for which the compiler computes nonsense).
        """
        return self.zero_point != 0 or len(self.scales) == 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One node that the compiler computes at once. node: operands by the names of float tensors; integer: whether it is
    computed in integers, of ``bits`` at least; why: of what stays in float; apart: whether it reads its operand through
    a conversion of its own, so that the compiler cannot fuse it with what reads the same tensor; converts: whether it
    is no node, but its operand on its result's grid.
    """

    node: onnx.NodeProto
    integer: bool
    bits: Bits = 8
    why: str = ""
    weights: EncodedWeights | None = None
    apart: bool = False
    converts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What was spelt otherwise than in the float model, for the record."""

    node: str
    what: str
    why: str


@dataclass(slots=True, kw_only=True)
class Spelling:
    """All operations in order, and what spelling brought in. constants: new initialisers; like: new tensor -> the one
    whose grid it shares; ranges: of tensors that nobody observed; grids: in place of the parameters'; gates: tensors
    that the HTP does not round, although it asks for their quantisers; clipping: tensors whose grid does what a Relu or
    Clip that was left out would.
    """

    operations: list[Operation] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    like: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    gates: set[str] = field(default_factory=set)
    clipping: set[str] = field(default_factory=set)
    forms: list[Form] = field(default_factory=list)

    def readers(self) -> Mapping[str, list[Operation]]:
        """Tensor -> the operations that read it."""
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            for name in dict.fromkeys(operation.node.input):
                found.setdefault(name, []).append(operation)
        return found
