"""Room ``fixedpoint``: writes a new ONNX graph. Nodes and constants enter, a checked ModelProto leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npubake.graph.inference import infer_shapes
from npubake.graph.int4 import int4_tensor
from npubake.graph.naming import fresh_name
from npubake.graph.opset import IR_VERSION, OPSET, STANDARD_DOMAINS
from npubake.graph.ordering import needed_nodes, sort_nodes

Array = NDArray[Any]


class ModelWriter:
    """Collects nodes with unique names. Small equal constants are shared."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._shared: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._taken = set(taken)

    def take(self, names: Iterable[str]) -> None:
        """Never give out these names."""
        self._taken.update(names)

    def constants(self) -> tuple[onnx.TensorProto, ...]:
        """All initialisers made so far."""
        return tuple(self._constants.values())

    def unique(self, wish: str) -> str:
        """``wish``, or ``wish`` with a number where that is taken. Tensors and nodes share one space of names."""
        return fresh_name(wish, self._taken)

    def constant(self, value: Array | np.generic, wish: str) -> str:
        """The name of an initialiser that holds ``value``."""
        array = np.asarray(value)
        key = (array.tobytes(), str(array.dtype), array.shape)
        if key not in self._shared:
            name = self.unique(wish)
            self._shared[key] = name
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return self._shared[key]

    def int4(self, values: Array, wish: str) -> str:
        """The name of an INT4 initialiser that holds ``values``."""
        name = self.unique(wish)
        self._constants[name] = int4_tensor(values, name)
        return name

    def keep_constant(self, tensor: onnx.TensorProto) -> str:
        """Carry an initialiser of the old model over, under its name."""
        self._constants.setdefault(tensor.name, tensor)
        return tensor.name

    def node(self, op_type: str, inputs: Sequence[str], wish: str, output: str = "", **attributes: Any) -> str:
        """Add a one-output node called ``wish``/``op_type``; its output is ``output`` or named like the node."""
        name = self.unique(f"{wish}/{op_type}")
        result = output or self.unique(f"{name}_output")
        self.nodes.append(helper.make_node(op_type, list(inputs), [result], name=name, **attributes))
        return result

    def widened(self, name: str, wish: str) -> str:
        """``name`` as float64; a constant may hold that type already."""
        tensor = self._constants.get(name)
        if tensor is not None and tensor.data_type == onnx.TensorProto.DOUBLE:
            return name
        return self.node("Cast", [name], wish, to=onnx.TensorProto.DOUBLE)

    def copy_node(self, node: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Add ``node`` under its own name with other tensors."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(inputs)
        del copy.output[:]
        copy.output.extend(outputs)
        self.nodes.append(copy)

    def model(
        self, origin: onnx.ModelProto, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """The finished model: topological order, unused constants left out, checked, shapes inferred. origin: the model
        that it was made from, whose name, functions and foreign domains it keeps.
        """
        nodes = sort_nodes(needed_nodes(self.nodes, [value.name for value in outputs]))
        read = {tensor for node in nodes for tensor in node.input} | {value.name for value in outputs}
        graph = helper.make_graph(
            nodes,
            origin.graph.name or "model",
            list(inputs),
            list(outputs),
            [c for key, c in self._constants.items() if key in read],
        )
        foreign = [entry for entry in origin.opset_import if entry.domain not in STANDARD_DOMAINS]
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), *foreign],
            functions=list(origin.functions),
            ir_version=IR_VERSION,
            producer_name="npubake",
        )
        onnx.checker.check_model(model, full_check=True)
        return infer_shapes(model)
