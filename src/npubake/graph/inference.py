"""Room ``graph``: shapes and types of a model's tensors, inferred and read. A ``ModelProto`` in, its facts in place."""

from __future__ import annotations

import json
from collections.abc import Iterator

import onnx
from onnx import helper

STATED_FACTS = "npubake.outputs"  # beside a node of a foreign domain: JSON, [element type, sizes...] of each output
_LARGE = 4096  # bytes; shape arithmetic never needs constants of this size
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` itself, its tensors' facts inferred anew (strict, with data propagation), in order of computation.

    Large float initialisers stand in as inputs meanwhile, since only their sizes matter and the inference copies all.
    Raises ``onnx.shape_inference.InferenceError`` where sizes or types contradict each other.
    """
    skeleton = without_graph_body(model)
    skeleton.ir_version = max(model.ir_version, 4)  # below 4 every initialiser must be an input too
    skeleton.graph.node.extend(model.graph.node)
    for tensor in model.graph.initializer:
        if tensor.ByteSize() > _LARGE and tensor.data_type in _FLOATS:
            skeleton.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        else:
            skeleton.graph.initializer.append(tensor)
    skeleton.graph.value_info.extend(_stated_facts(model.graph))
    inferred = onnx.shape_inference.infer_shapes(skeleton, check_type=True, strict_mode=True, data_prop=True)
    facts = {value.name: value for value in inferred.graph.value_info}
    made = [name for node in model.graph.node for name in node.output if name in facts]
    del model.graph.value_info[:]
    model.graph.value_info.extend(facts[name] for name in made)
    del model.graph.output[:]
    model.graph.output.extend(inferred.graph.output)
    return model


def _stated_facts(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """What stands beside nodes that the inference does not know."""
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        for entry in node.metadata_props:
            if entry.key == STATED_FACTS:
                for name, fact in zip(node.output, json.loads(entry.value), strict=True):
                    if name and name not in outputs:
                        yield helper.make_tensor_value_info(name, fact[0], fact[1:])


def without_graph_body(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of everything but nodes, initialisers and inferred facts; weights are not copied."""
    copy = onnx.ModelProto()
    copy.ir_version = model.ir_version
    for name in ("producer_name", "producer_version", "domain", "doc_string", "model_version"):
        if model.HasField(name):
            setattr(copy, name, getattr(model, name))
    copy.opset_import.extend(model.opset_import)
    copy.metadata_props.extend(model.metadata_props)
    copy.functions.extend(model.functions)
    copy.graph.name = model.graph.name
    copy.graph.input.extend(model.graph.input)
    copy.graph.output.extend(model.graph.output)
    return copy


def static_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Sizes of a tensor, or None where a dimension (or the rank) is not a number."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None
