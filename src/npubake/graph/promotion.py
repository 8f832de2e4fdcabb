"""Room ``graph``: half-precision models as float32. A model enters, the same function in float32 leaves.

float16 and bfloat16 values are float32 values too, so nothing is rounded here; what the model computes becomes more
exact, not less. A quantiser's statistics, and the golden outputs, are then those of float32.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.nesting import every_graph

HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def promote_half(model: onnx.ModelProto) -> tuple[str, ...]:
    """Make every float16 and bfloat16 tensor of ``model`` float32, in place; returns names of what was promoted:
    initialisers, inputs, outputs, and nodes that made or named such a type, in the model's order, inner graphs too.
    """
    promoted = [name for graph in every_graph(model.graph) for name in _promote_graph(graph)]
    if promoted:
        for graph in every_graph(model.graph):
            del graph.value_info[:]
    return tuple(promoted)


def _promote_graph(graph: onnx.GraphProto) -> Iterator[str]:
    for tensor in graph.initializer:
        if tensor.data_type in HALF:
            yield tensor.name
            tensor.CopyFrom(_widened(tensor))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in HALF:
            yield value.name
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        if _promote_node(node):
            yield node.name


def _promote_node(node: onnx.NodeProto) -> bool:
    changed = [_promote_attribute(entry) for entry in node.attribute]
    return any(changed)


def _promote_attribute(entry: onnx.AttributeProto) -> bool:
    """Tensors, and the types that Cast, EyeLike and their like name as a number."""
    if entry.type == onnx.AttributeProto.TENSOR and entry.t.data_type in HALF:
        entry.t.CopyFrom(_widened(entry.t))
        return True
    if entry.name in ("to", "dtype") and entry.type == onnx.AttributeProto.INT and entry.i in HALF:
        entry.CopyFrom(helper.make_attribute(entry.name, TensorProto.FLOAT))
        return True
    return False


def _widened(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
