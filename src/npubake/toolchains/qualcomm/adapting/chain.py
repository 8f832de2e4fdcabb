"""Qualcomm toolchain: nodes behind one input, each reading the last one's result. onnx nodes and constants leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npubake.toolchains.qualcomm.adapting.grids import Grid


@dataclass(slots=True, kw_only=True)
class Chain:
    """prefix: of all names; seen: the last result. In integers every result passes a quantiser."""

    prefix: str
    seen: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, op_type: str, label: str, *operands: str, **attributes: Any) -> None:
        name = f"{self.prefix}/{label}"
        self.nodes.append(helper.make_node(op_type, [self.seen, *operands], [name], name=name, **attributes))
        self.seen = name

    def constant(self, label: str, value: NDArray[Any]) -> str:
        name = f"{self.prefix}/{label}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def dequantise(self, label: str, grid: Grid) -> None:
        self.add("DequantizeLinear", f"{label}/dequantized", *self._steps(label, grid))

    def quantise(self, label: str, grid: Grid) -> None:
        self.add("QuantizeLinear", f"{label}/quantized", *self._steps(label, grid))

    def through(self, label: str, grid: Grid) -> None:
        """A quantiser between two nodes."""
        self.quantise(label, grid)
        self.add("DequantizeLinear", f"{label}/dequantized", *self._names(label))

    def dequantised(self, label: str, codes: NDArray[Any], steps: NDArray[np.float64]) -> str:
        """A constant of integers with a scale for each of the first axis."""
        names = [
            self.constant(f"{label}/quantized", codes),
            self.constant(f"{label}/scale", steps.astype(np.float32)),
            self.constant(f"{label}/zero_point", np.zeros(len(steps), codes.dtype)),
        ]
        result = f"{self.prefix}/{label}/dequantized"
        self.nodes.append(helper.make_node("DequantizeLinear", names, [result], name=result, axis=0))
        return result

    def _steps(self, label: str, grid: Grid) -> tuple[str, str]:
        self.constant(f"{label}/scale", np.array(grid.scale, np.float32).reshape(()))
        self.constant(f"{label}/zero_point", np.array(grid.zero_point, grid.dtype).reshape(()))
        return self._names(label)

    def _names(self, label: str) -> tuple[str, str]:
        return f"{self.prefix}/{label}/scale", f"{self.prefix}/{label}/zero_point"
