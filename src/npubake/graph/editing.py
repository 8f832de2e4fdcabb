"""Room ``graph``: a model being edited. A ``ModelProto`` enters (and is never touched), another leaves.

Passes work on a ``GraphEditor`` only. It answers who makes and who reads a tensor, gives out names that collide with
nothing, and puts nodes in topological order at the end. No node holds a graph: ``import`` makes calls of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npubake.graph.inference import infer_shapes, static_shape, without_graph_body
from npubake.graph.naming import all_names, fresh_name
from npubake.graph.node_index import NodeIndex
from npubake.graph.ordering import needed_nodes, sort_nodes
from npubake.graph.summary import Provenance

Array = NDArray[Any]


class GraphEditor:
    """A model being edited, without nodes that no output needs. ``nodes`` may be read; changes go through methods."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._origin = model
        graph = model.graph
        self._index = NodeIndex(map(_copied, needed_nodes(graph.node, [value.name for value in graph.output])))
        self.inputs = [value.name for value in graph.input]
        self.outputs = [value.name for value in graph.output]
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._values: dict[str, Array] = {}
        self._values_of = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self._facts: dict[str, tuple[tuple[int, ...] | None, int]] = {}
        self._names: set[str] | None = None
        self._changed = len(self._index) < len(graph.node)

    # Questions.

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes as they stand, in a list of the caller's own."""
        return list(self._index)

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        """The node that makes ``tensor``; None for inputs, constants and the absent input ''."""
        return self._index.producer(tensor)

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """Nodes that read ``tensor``, one entry for each reading slot."""
        return self._index.readers(tensor)

    def only_reader(self, tensor: str) -> onnx.NodeProto | None:
        """The one node that reads ``tensor``, in one slot, where ``tensor`` is no graph output; else None."""
        readers = self.readers(tensor)
        return readers[0] if len(readers) == 1 and tensor not in self.outputs else None

    def is_constant(self, tensor: str) -> bool:
        return tensor in self._constants

    def constant(self, tensor: str) -> Array | None:
        """The value of an initialiser (read only), or None for anything else."""
        if tensor not in self._constants:
            return None
        if tensor not in self._values:
            value = numpy_helper.to_array(self._constants[tensor])
            value.flags.writeable = False
            self._values[tensor] = value
        return self._values[tensor]

    def needed_constant(self, tensor: str) -> Array:
        """The value of an initialiser. Raises ValueError for anything else: the caller has asked before."""
        value = self.constant(tensor)
        if value is None:
            raise ValueError(f"{tensor}: no constant")
        return value

    def scalar(self, tensor: str) -> float | None:
        """The value of a constant with exactly one element, or None."""
        value = self.constant(tensor)
        if value is None or value.size != 1 or value.dtype.kind not in "fiu":
            return None
        return float(value.reshape(-1)[0])

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """Static shape, or None where it is not known in full."""
        if tensor in self._constants:
            return tuple(self._constants[tensor].dims)
        return self._fact(tensor)[0]

    def element_type(self, tensor: str) -> int:
        """``onnx.TensorProto`` data type; 0 where unknown."""
        if tensor in self._constants:
            return int(self._constants[tensor].data_type)
        return self._fact(tensor)[1]

    # Changes.

    def fresh(self, wish: str) -> str:
        """A name that no tensor, initialiser or node has: ``wish``, or ``wish`` with the first free number."""
        return fresh_name(wish, self._taken())

    def add_constant(self, wish: str, value: Array) -> str:
        """A new initialiser; returns its name."""
        name = self.fresh(wish)
        self.set_constant(name, value)
        return name

    def set_constant(self, name: str, value: Array) -> None:
        """Make ``name`` an initialiser, which no node may produce any more."""
        array = np.ascontiguousarray(value) if value.ndim else value
        self._constants[name] = numpy_helper.from_array(array, name)
        self._values.pop(name, None)
        self._taken().add(name)
        self._changed = True

    def add_node(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], wish: str, **attributes: Any
    ) -> onnx.NodeProto:
        """Append a node (order is repaired by ``finish``) under a name made from ``wish``."""
        node = helper.make_node(op_type, list(inputs), list(outputs), name=self.fresh(wish), **attributes)
        self._index.append(node)
        self._changed = True
        return node

    def remove(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            self._index.remove(node)
            self._changed = True

    def set_inputs(self, node: onnx.NodeProto, inputs: Sequence[str]) -> None:
        with self._changing(node):
            del node.input[:]
            node.input.extend(inputs)

    def set_output(self, node: onnx.NodeProto, tensor: str) -> None:
        """Let the first output of ``node`` be ``tensor``."""
        with self._changing(node):
            node.output[0] = tensor

    def keep_outputs(self, node: onnx.NodeProto, count: int) -> None:
        """Let ``node`` make its first ``count`` results alone."""
        with self._changing(node):
            del node.output[count:]

    def redirect(self, old: str, new: str) -> None:
        """Let every reader of ``old`` read ``new``."""
        for node in self.readers(old):
            self.set_inputs(node, [new if name == old else name for name in node.input])
        self._changed = True

    def rename(self, tensor: str, renamed: str) -> None:
        """Give a computed tensor that is no output of the graph another name."""
        maker = self.producer(tensor)
        assert maker is not None
        with self._changing(maker):
            for slot, name in enumerate(maker.output):
                if name == tensor:
                    maker.output[slot] = renamed
        self.redirect(tensor, renamed)

    def bypass(self, node: onnx.NodeProto, source: str) -> Provenance | None:
        """Remove ``node``, whose first output equals ``source``; returns what became of the tensor that vanished.

        A graph output keeps its name: then it is ``source`` that is renamed. None (and no change) where neither name
        can go: ``source`` is an input, a constant or an output of the graph, and so is the result.
        """
        result = node.output[0]
        if result not in self.outputs:
            self.redirect(result, source)
            self.remove([node])
            return Provenance(old=result, new=source, relation="same")
        maker = self.producer(source)
        if maker is None or source in self.outputs:
            return None
        self.remove([node])
        self.rename(source, result)
        return Provenance(old=source, new=result, relation="same")

    def finish(self) -> onnx.ModelProto:
        """The edited model: unused nodes and initialisers dropped, topological order, shapes inferred again; the old
        one itself where there is nothing to do.
        """
        if not self._changed and self._is_finished():
            return self._origin
        nodes = sort_nodes(needed_nodes(self.nodes, self.outputs))
        read = {name for node in nodes for name in node.input} | set(self.outputs)
        model = without_graph_body(self._origin)
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(tensor for name, tensor in self._constants.items() if name in read)
        return infer_shapes(model)

    def _is_finished(self) -> bool:
        """Whether the old model is as ``finish`` would leave it: nothing unused, everything inferred, in order."""
        graph = self._origin.graph
        made = [name for node in self.nodes for name in node.output if name]
        read = {name for node in self.nodes for name in node.input} | set(self.outputs)
        known = {value.name for value in (*graph.value_info, *graph.output)}
        seen = {value.name for value in graph.input} | self._constants.keys() | {""}
        for node in self.nodes:
            if not seen.issuperset(node.input):
                return False
            seen.update(node.output)
        return self._constants.keys() <= read and known.issuperset(made)

    def _fact(self, tensor: str) -> tuple[tuple[int, ...] | None, int]:
        """(static shape or None, element type) of a tensor as it was before the editing."""
        if tensor not in self._facts:
            value = self._values_of.get(tensor)
            known = (static_shape(value), value.type.tensor_type.elem_type) if value is not None else (None, 0)
            self._facts[tensor] = known
        return self._facts[tensor]

    def _taken(self) -> set[str]:
        if self._names is None:
            self._names = all_names(self._origin)
        return self._names

    @contextmanager
    def _changing(self, node: onnx.NodeProto) -> Iterator[None]:
        """Around a change of what ``node`` reads or makes."""
        self._index.unlink(node)
        yield
        self._index.link(node)
        self._changed = True


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of a node's attribute, bytes decoded, or ``default`` where the node does not carry it."""
    for entry in node.attribute:
        if entry.name == name:
            value = helper.get_attribute_value(entry)
            return value.decode() if isinstance(value, bytes) else value
    return default
