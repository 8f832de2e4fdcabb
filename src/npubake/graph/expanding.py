"""Room ``graph``: operators newer than the opset that models are brought to, or whose size ONNX does not infer. A model
enters, another leaves.

Where ONNX itself defines such an operator (RMSNormalization, Attention, RotaryEmbedding, Swish, ...) by older ones, the
definition takes its place. Nodes in graphs inside nodes are left; the version converter then says what it thinks.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx.inliner
from onnx import helper

from npubake.graph.opset import OPSET, STANDARD_DOMAINS, opset_of

_DOMAIN = "npubake.expanded"
_SIZELESS = ("GroupNormalization", "MeanVarianceNormalization")  # of these alone ONNX infers no size


def expand_newer_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with the nodes of its main graph spelt in operators that opset ``OPSET`` has, as far as defined."""
    opset = opset_of(model) or OPSET
    standard = [node for node in model.graph.node if node.domain in STANDARD_DOMAINS]
    newer = [node for node in standard if node.op_type in _SIZELESS or _is_newer(node.op_type, opset)]
    if not newer:
        return model
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    types = {value.name: value.type for value in (*inferred.graph.value_info, *model.graph.input)}
    for tensor in model.graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    expanded = 0
    for node in newer:
        body = _definition(node, opset, [types.get(name) for name in node.input])
        if body is not None:
            _state_defaults(node, opset)
            body.domain, body.name, body.overload = _DOMAIN, node.op_type, node.name
            model.functions.append(body)
            node.domain, node.overload = _DOMAIN, node.name
            expanded += 1
    if not expanded:
        return model
    model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    inlined = onnx.inliner.inline_local_functions(model)
    kept = [entry for entry in inlined.opset_import if entry.domain != _DOMAIN]
    del inlined.opset_import[:]
    inlined.opset_import.extend(kept)
    return inlined


def _is_newer(kind: str, opset: int) -> bool:
    return onnx.defs.has(kind, opset, "") and not onnx.defs.has(kind, OPSET, "")


def _state_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Write the attributes that ``node`` leaves at their defaults: a function knows none."""
    stated = {entry.name for entry in node.attribute}
    for name, entry in onnx.defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in stated and entry.default_value.name:
            node.attribute.append(entry.default_value)


def _definition(node: onnx.NodeProto, opset: int, types: list[onnx.TypeProto | None]) -> onnx.FunctionProto | None:
    """What ONNX defines ``node`` by, in the newest opset that it gives up to ``opset``; None where it does not."""
    schema: Any = onnx.defs.get_schema(node.op_type, opset, "")  # its functions are missing in onnx's own types
    if schema.has_context_dependent_function:
        version = max(each for each in schema.context_dependent_function_opset_versions if each <= opset)
        encoded = [(each or onnx.TypeProto()).SerializeToString() for each in types]
        body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), encoded)
    elif schema.has_function:
        body = schema.get_function_with_opset_version(max(v for v in schema.function_opset_versions if v <= opset))
    else:
        return None
    made = onnx.FunctionProto()
    made.ParseFromString(body)
    for entry in made.opset_import:  # of an older definition; the inliner wants the model's own opset
        entry.version = opset if entry.domain in STANDARD_DOMAINS else entry.version
    return made
