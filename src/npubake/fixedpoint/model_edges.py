"""Fixed-point room: one edge of a model being edited, a graph input or output with the nodes beside it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import onnx
from onnx import helper

from npubake.graph.editing import GraphEditor

Side = Literal["inputs", "outputs"]
_MOVES = ("Reshape", "Transpose")  # they commute with a Quantize or Dequantize of one scale


class InputEdge:
    """A graph input whose only reader may go, or the Reshape or Transpose behind a Quantize that stays."""

    side: Side = "inputs"

    def __init__(
        self, editor: GraphEditor, value: onnx.ValueInfoProto, own_nodes: Collection[str] | None = None
    ) -> None:
        self.editor = editor
        self.value = value
        self.own_nodes = own_nodes

    def find(self, op_types: Sequence[str]) -> tuple[onnx.NodeProto, str] | None:
        node = self._reader(self.value.name)
        if node is not None and node.op_type == "QuantizeLinear" and node.op_type not in op_types:
            node = self._reader(node.output[0]) if self.editor.scalar(node.input[1]) is not None else None
            op_types = [op_type for op_type in op_types if op_type in _MOVES]
        if node is None or node.op_type not in op_types:
            return None
        foreign = self.own_nodes is not None and node.op_type == "Cast" and node.name not in self.own_nodes
        return None if foreign else (node, "remove")

    def _reader(self, tensor: str) -> onnx.NodeProto | None:
        node = self.editor.only_reader(tensor)
        return None if node is None or node.input[0] != tensor or node.output[0] in self.editor.outputs else node

    def remove(self, node: onnx.NodeProto) -> None:
        source, result = node.input[0], node.output[0]
        kind = result if source == self.value.name else self.value.name
        _retype(self.value, self.editor.element_type(kind), self.editor.shape(result))
        self.editor.redirect(result, source)
        self.editor.remove([node])


class OutputEdge:
    """A graph output whose maker may go, or the Reshape or Transpose before a Dequantize that stays."""

    side: Side = "outputs"

    def __init__(self, editor: GraphEditor, value: onnx.ValueInfoProto, int32_tail: bool) -> None:
        self.editor = editor
        self.value = value
        self.int32_tail = int32_tail

    def find(self, op_types: Sequence[str]) -> tuple[onnx.NodeProto, str] | None:
        node = self._maker(self.value.name)
        if node is None:
            return None
        if node.op_type == "DequantizeLinear" and node.op_type not in op_types:
            if self.int32_tail and self.editor.element_type(node.input[0]) == onnx.TensorProto.INT32:
                return node, "tail int32"
            node = self._maker(node.input[0]) if self.editor.scalar(node.input[1]) is not None else None
            op_types = [op_type for op_type in op_types if op_type in _MOVES]
        return (node, "remove") if node is not None and node.op_type in op_types else None

    def _maker(self, tensor: str) -> onnx.NodeProto | None:
        node = self.editor.producer(tensor)
        if node is None or not node.input or self.editor.producer(node.input[0]) is None:
            return None
        return None if node.input[0] in self.editor.outputs else node

    def remove(self, node: onnx.NodeProto) -> None:
        """The source takes the output's name; where the graph itself reads the output, the node stays for it."""
        name, source = self.value.name, node.input[0]
        if node.output[0] != name:  # behind a Dequantize that stays
            last = self.editor.producer(name)
            assert last is not None
            _retype(self.value, self.editor.element_type(name), self.editor.shape(source))
            if self.editor.readers(name):
                inner = self.editor.fresh(f"{name}/inner")
                self.editor.redirect(name, inner)
                self.editor.add_node(last.op_type, list(last.input), [inner], inner)
            self.editor.set_inputs(last, [source, *last.input[1:]])
            return
        maker = self.editor.producer(source)
        assert maker is not None
        _retype(self.value, self.editor.element_type(source), self.editor.shape(source))
        if self.editor.readers(name):
            inner = self.editor.fresh(f"{name}/inner")
            self.editor.redirect(name, inner)
            self.editor.set_output(node, inner)
        else:
            self.editor.remove([node])
        self.editor.redirect(source, name)
        for slot, made in enumerate(maker.output):
            if made == source:
                maker.output[slot] = name
        self.editor.set_inputs(maker, list(maker.input))  # its outputs changed: let the editor look again


def edge_facts(value: onnx.ValueInfoProto) -> tuple[str, tuple[int, ...]]:
    """(dtype by numpy's name, shape) of a graph input or output."""
    tensor = value.type.tensor_type
    name = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return name, tuple(dim.dim_value for dim in tensor.shape.dim)


def _retype(value: onnx.ValueInfoProto, kind: int, shape: tuple[int, ...] | None) -> None:
    """Give a graph input or output a dtype and a shape."""
    assert shape is not None
    assert kind
    value.type.CopyFrom(helper.make_tensor_type_proto(kind, shape))
