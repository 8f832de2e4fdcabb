"""A graph being grown at random: what operators may be added to, and how. Nothing here draws; ``operators`` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.opset import IR_VERSION, OPSET

Array = NDArray[Any]
MOST_ELEMENTS = 600  # of one tensor: the evaluator works in Python integers


class Dice(Protocol):
    """Choices, made by hypothesis (which then finds the smallest failing graph) or by a seeded generator."""

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""

    def choice(self, options: Sequence[Any]) -> Any:
        """One of ``options``."""


class DeadEndError(Exception):
    """The operator cannot be put on this tensor; another one is tried."""


@dataclass(slots=True)
class Growth:
    """shapes: float32 tensors made so far, in order; constants by name; generator: for the values of weights."""

    dice: Dice
    generator: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, value: Array) -> str:
        name = self.fresh("k")
        self.constants[name] = value
        return name

    def floats(self, *values: float) -> str:
        return self.constant(np.array(values, np.float32))

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int, scale: float = 0.4) -> str:
        """Normal values; now and then a channel of zeros, or one far above the others."""
        value = (self.generator.standard_normal(shape) * scale).astype(np.float32)
        if len(shape) > 1 and self.generator.random() < 0.15:
            value[int(self.generator.integers(shape[0]))] *= np.float32(self.generator.choice([0.0, 30.0]))
        return self.constant(value)

    def add(self, kind: str, inputs: Sequence[str], shape: Sequence[int] | None = None, **attributes: Any) -> str:
        """A node with one output; its shape is inferred where it is not given. DeadEndError where the graph says no."""
        result = self.fresh("t")
        node = helper.make_node(kind, list(inputs), [result], name=f"{kind}_{result}", **attributes)
        size = tuple(shape) if shape is not None else self._inferred(node)
        if not all(size) or int(np.prod(size)) > MOST_ELEMENTS:
            raise DeadEndError(kind)
        self.nodes.append(node)
        self.shapes[result] = size
        return result

    def mark(self) -> tuple[int, int]:
        """Where the graph stands, for ``back``."""
        return len(self.nodes), len(self.shapes)

    def back(self, mark: tuple[int, int]) -> None:
        """Forget what was added since ``mark``."""
        del self.nodes[mark[0] :]
        for name in list(self.shapes)[mark[1] :]:
            del self.shapes[name]

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The graph with these outputs, nodes that none of them needs included."""
        read = {name for node in self.nodes for name in node.input}
        graph = helper.make_graph(
            self.nodes,
            "grown",
            [_value(name, self.shapes[name]) for name in self.inputs],
            [_value(name, self.shapes[name]) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in read],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _inferred(self, node: onnx.NodeProto) -> tuple[int, ...]:
        known = {name: _value(name, self.shapes[name]) for name in node.input if name in self.shapes}
        graph = helper.make_graph(
            [node],
            "one",
            list(known.values()),
            [helper.make_empty_tensor_value_info(node.output[0])],
            [numpy_helper.from_array(self.constants[name], name) for name in node.input if name in self.constants],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        try:
            found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            raise DeadEndError(node.op_type) from error
        dims = found.graph.output[0].type.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            raise DeadEndError(node.op_type)
        return tuple(dim.dim_value for dim in dims)


def _value(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
