"""Room ``graph``: models in half precision as float32. A model enters, the same function in float32 leaves.

float16 and bfloat16 values are float32 values too, so nothing is rounded here; what the model computes becomes more
exact, not less. A quantiser's statistics, and the golden outputs, are then those of float32. Models in double precision
are rounded by the same rewriting (``graph/narrowing.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.nesting import every_graph

HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def promote_half(model: onnx.ModelProto) -> tuple[str, ...]:
    """Make every float16 and bfloat16 tensor of ``model`` float32, in place; returns what ``make_float32`` does."""
    return make_float32(model, HALF)


def make_float32(model: onnx.ModelProto, kinds: Collection[int]) -> tuple[str, ...]:
    """Make every tensor of the element types ``kinds`` float32, in place; returns names of what was changed:
    initialisers, inputs, outputs, and nodes that made or named such a type, in the model's order, inner graphs too.
    """
    changed = [name for graph in every_graph(model.graph) for name in _change_graph(graph, kinds)]
    if changed:
        for graph in every_graph(model.graph):
            del graph.value_info[:]
    return tuple(changed)


def _change_graph(graph: onnx.GraphProto, kinds: Collection[int]) -> Iterator[str]:
    for tensor in graph.initializer:
        if tensor.data_type in kinds:
            yield tensor.name
            tensor.CopyFrom(_float32(tensor))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in kinds:
            yield value.name
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        changed = [_change_attribute(entry, kinds) for entry in node.attribute]
        if any(changed):
            yield node.name


def _change_attribute(entry: onnx.AttributeProto, kinds: Collection[int]) -> bool:
    """Tensors, and the types that Cast, EyeLike and their like name as a number."""
    if entry.type == onnx.AttributeProto.TENSOR and entry.t.data_type in kinds:
        entry.t.CopyFrom(_float32(entry.t))
        return True
    if entry.name in ("to", "dtype") and entry.type == onnx.AttributeProto.INT and entry.i in kinds:
        entry.CopyFrom(helper.make_attribute(entry.name, TensorProto.FLOAT))
        return True
    return False


def _float32(tensor: onnx.TensorProto) -> onnx.TensorProto:
    with np.errstate(over="ignore"):
        return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
