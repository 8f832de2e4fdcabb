"""Room ``fixedpoint``: the state of one lowering, shared by all kernels. Built by ``lower``, filled group by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.errors import Fault, StageError
from npubake.fixedpoint.forms import TensorForms
from npubake.fixedpoint.lowered import Certificate, FloatNode, OutputFact, TableFact, Tail
from npubake.fixedpoint.writer import ModelWriter
from npubake.graph.editing import attribute
from npubake.graph.naming import all_names
from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.parameters import QuantizationParameters, WeightParameters

Array = NDArray[Any]


class NoIntegerKernelError(Exception):
    """A group that has no exact integer kernel; ``lower`` computes it in float and lists it. args: the reason."""


@dataclass(slots=True, kw_only=True)
class Lowering:
    """What kernels read (graph, parameters) and what they write (nodes, forms, certificates)."""

    summary: GraphSummary
    parameters: QuantizationParameters
    tail: Tail
    nodes: Mapping[str, onnx.NodeProto]
    initializers: Mapping[str, onnx.TensorProto]
    writer: ModelWriter
    forms: TensorForms
    certificates: list[Certificate] = field(default_factory=list)
    float_nodes: list[FloatNode] = field(default_factory=list)
    tables: list[TableFact] = field(default_factory=list)
    outputs: dict[str, OutputFact] = field(default_factory=dict)
    rounded_to_half: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, model: onnx.ModelProto, summary: GraphSummary, parameters: QuantizationParameters, tail: Tail
    ) -> Lowering:
        """An empty lowering of ``model``, whose facts are ``summary``."""
        writer = ModelWriter(all_names(model))
        return cls(
            summary=summary,
            parameters=parameters,
            tail=tail,
            nodes={node.name: node for node in model.graph.node},
            initializers=_initializers(model),
            writer=writer,
            forms=TensorForms(writer, parameters),
        )

    def group_nodes(self, group: FusionGroup) -> list[onnx.NodeProto]:
        return [self.nodes[name] for name in group.nodes]

    def constant(self, name: str) -> Array | None:
        """The value of an initialiser or a Constant node; None for computed tensors and absent inputs."""
        tensor = self.initializers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.summary.tensors[tensor].shape

    def weights(self, group: FusionGroup) -> WeightParameters:
        """Weight parameters of ``group``. Raises StageError where calibrate gave none."""
        found = self.parameters.weights.get(group.name)
        if found is None:
            raise StageError(
                Fault(
                    what="the group computes in integers, and the parameters hold no weights for it",
                    where=group.name,
                    hint="run calibrate again on this graph",
                )
            )
        return found

    def certify(self, group: FusionGroup, kernel: str, bound: int, exact: str) -> None:
        self.certificates.append(Certificate(group=group.name, kernel=kernel, bound=bound, exact=exact))


Kernel = Callable[[Lowering, FusionGroup], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """A group taken apart. addend: constant of a fused Add (None without one); low, high: fused Relu or Clip limits."""

    anchor: onnx.NodeProto
    addend: Array | None = None
    low: Fraction | None = None
    high: Fraction | None = None


def take_apart(lowering: Lowering, group: FusionGroup, anchors: tuple[str, ...], fuses_add: bool = False) -> Fused:
    """Anchor node, fused constant Add, fused Relu/Clip of ``group``. Raises NoIntegerKernelError for anything else."""
    anchor: onnx.NodeProto | None = None
    addend: Array | None = None
    low: Fraction | None = None
    high: Fraction | None = None
    for node in lowering.group_nodes(group):
        if anchor is None and node.op_type in anchors:
            anchor = node
        elif node.op_type == "Add" and fuses_add and addend is None and low is None and high is None:
            addend = next((value for name in node.input if (value := lowering.constant(name)) is not None), None)
        elif node.op_type in ("Relu", "Clip"):
            new_low, new_high = clip_limits(lowering, node)
            low, high = _meet(low, high, new_low, new_high)
        elif node.op_type not in ("Constant", "Identity"):
            raise NoIntegerKernelError(f"{node.op_type} inside a {group.kind} group")
    if anchor is None:
        raise NoIntegerKernelError(f"a {group.kind} group without {' or '.join(anchors)}")
    return Fused(anchor=anchor, addend=addend, low=low, high=high)


def clip_limits(lowering: Lowering, node: onnx.NodeProto) -> tuple[Fraction | None, Fraction | None]:
    """Limits of a Relu or Clip node; None where it has none (an infinite limit counts as none)."""
    if node.op_type == "Relu":
        return Fraction(0), None
    found: list[Fraction | None] = []
    for position, name in ((1, "min"), (2, "max")):
        value = attribute(node, name, None)
        if len(node.input) > position and node.input[position]:
            constant = lowering.constant(node.input[position])
            if constant is None:
                raise NoIntegerKernelError(f"Clip with a computed {name}")
            value = float(constant.reshape(-1)[0])
        found.append(Fraction(float(value)) if value is not None and np.isfinite(value) else None)
    low, high = found
    if low is not None and high is not None and low > high:
        low = high  # the operator's definition: the upper limit is applied last
    return low, high


def _meet(
    low: Fraction | None, high: Fraction | None, new_low: Fraction | None, new_high: Fraction | None
) -> tuple[Fraction | None, Fraction | None]:
    """Limits of clip(clip(x, low, high), new_low, new_high)."""

    def clip(value: Fraction | None) -> Fraction | None:
        if value is not None and new_low is not None:
            value = max(value, new_low)
        if value is not None and new_high is not None:
            value = min(value, new_high)
        return value

    return (new_low if low is None else clip(low)), (new_high if high is None else clip(high))


def _initializers(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and (value := attribute(node, "value", None)) is not None:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
            found[tensor.name] = tensor
    return found
