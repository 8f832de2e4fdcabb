"""Qualcomm toolchain, SDK road: the ONNX model around a context binary of the SDK, as onnxruntime loads one. Pure.

One node EPContext (domain com.microsoft) names the binary beside the model and has the binary's tensors, in the form
that onnxruntime's ``gen_qnn_ctx_onnx_model.py`` gives binaries of the SDK.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from npubake.graph.opset import IR_VERSION, OPSET
from npubake.toolchains.qualcomm.htp.metadata import Graph, Metadata, Tensor

DOMAIN = "com.microsoft"


def wrapper_model(metadata: Metadata, binary: str) -> onnx.ModelProto:
    """binary: the file's name, which stands in the model: the two are moved together."""
    graph = metadata.parts[0].graphs[0]
    node = helper.make_node(
        "EPContext",
        [tensor.name for tensor in graph.inputs],
        [tensor.name for tensor in graph.outputs],
        name=graph.name,
        domain=DOMAIN,
        embed_mode=0,
        ep_cache_context=binary,
        ep_sdk_version=metadata.parts[0].build_id,
        main_context=1,
        partition_name=graph.name,
        source="QNN",
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(_graph(node, graph), opset_imports=opsets, ir_version=IR_VERSION, producer_name="npubake")
    onnx.checker.check_model(model)
    return model


def _graph(node: onnx.NodeProto, graph: Graph) -> onnx.GraphProto:
    inputs, outputs = ([_value(tensor) for tensor in side] for side in (graph.inputs, graph.outputs))
    return helper.make_graph([node], graph.name, inputs, outputs)


def _value(tensor: Tensor) -> onnx.ValueInfoProto:
    kind = TensorProto.DataType.Value("FLOAT" if tensor.dtype == "float32" else tensor.dtype.upper())
    return helper.make_tensor_value_info(tensor.name, kind, tensor.shape)
