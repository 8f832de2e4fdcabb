"""Qualcomm toolchain: from a node that the compiler names to the operator that the user knows. Pure.

The compiler names nodes of the model that it was given, where quantisers stand around each operator, and nodes that
onnxruntime made of them (``conv1_token_4``). Quantisers count to the operator that they surround.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import onnx

_EDGES = ("QuantizeLinear", "DequantizeLinear", "Cast")
_SUFFIX = re.compile(r"(_token_\d+|_\d+)$")  # what onnxruntime adds where it changes layouts or makes a name unique


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """The nodes of a compilable model. makers, readers: by tensor; shapes: of what the model states them for, a name
    where a size is open; types: of initializers, ``int8``.
    """

    nodes: dict[str, onnx.NodeProto]
    makers: dict[str, onnx.NodeProto]
    readers: dict[str, list[onnx.NodeProto]] = field(repr=False)
    shapes: dict[str, tuple[int | str, ...]] = field(repr=False)
    types: dict[str, str] = field(repr=False)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Operators:
        """Of every node; one without a name is known by its first output."""
        makers: dict[str, onnx.NodeProto] = {}
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            makers |= dict.fromkeys(node.output, node)
            for name in node.input:
                readers.setdefault(name, []).append(node)
        shapes = {
            value.name: tuple(size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim)
            for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
        }
        nodes = {node.name or node.output[0]: node for node in model.graph.node}
        types = {one.name: onnx.TensorProto.DataType.Name(one.data_type).lower() for one in model.graph.initializer}
        return cls(nodes=nodes, makers=makers, readers=readers, shapes=shapes, types=types)

    def users(self) -> list[str]:
        """Names of the operators, without the quantisers around them."""
        return [name for name, node in self.nodes.items() if node.op_type not in _EDGES]

    def find(self, name: str) -> onnx.NodeProto | None:
        """The operator behind a name that the compiler gave; None for one that is not of this model."""
        while name not in self.nodes:
            shorter = _SUFFIX.sub("", name)
            if shorter == name:
                return self._of_tensor(name)
            name = shorter
        return self._surrounded(self.nodes[name])

    def stored(self, tensor: str) -> str:
        """The ONNX type in which a tensor is held where an operator reads it: of the integers before its
        DequantizeLinear (``int8``), '' for one that is not quantised.
        """
        maker = self.makers.get(tensor)
        if maker is None or maker.op_type != "DequantizeLinear":
            return ""
        return next((self.types[name] for name in (maker.input[0], *maker.input[2:]) if name in self.types), "")

    def _of_tensor(self, name: str) -> onnx.NodeProto | None:
        while name:
            if name in self.makers:
                return self._surrounded(self.makers[name])
            name = name.rpartition("/")[0]
        return None

    def _surrounded(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A quantiser's operator: who made what it writes down, else who reads what it gives back."""
        seen: set[str] = set()
        while node.op_type in _EDGES and node.output[0] not in seen:
            seen.add(node.output[0])
            nearest = self._neighbours(node)
            if nearest is None:
                break
            node = nearest
        return node

    def _neighbours(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        reader = next(iter(self.readers.get(node.output[0], ())), None)
        maker = self.makers.get(node.input[0])
        return (maker or reader) if node.op_type == "QuantizeLinear" else (reader or maker)


def label(node: onnx.NodeProto) -> str:
    """How a fault names it."""
    return f"{node.name or node.output[0]} ({node.op_type})"
