"""What onnxruntime-qnn 2.7.0 (QNN 2.51.0) said in real compiles, and models in the form that it was given. Recorded."""

from __future__ import annotations

import onnx
from onnx import parser

ERROR_CPU = (
    "[ONNXRuntimeError] : 1 : FAIL : This session contains graph nodes that are assigned to the default CPU EP, but "
    "fallback to CPU EP has been explicitly disabled by the user."
)
ERROR_NHWC = (
    "[ONNXRuntimeError] : 1 : FAIL : Node 'stem_token_1' OpType:Conv with domain:com.ms.internal.nhwc was inserted "
    "using the NHWC format as requested by QNNExecutionProvider, but was not selected by that EP. This means the graph "
    "is now invalid as there will not be an EP able to run the node. This could be a bug in layout transformer, "
    "or in the "
    "GetCapability implementation of the EP."
)
ERROR_FUNCTION = (
    "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Encountered an invalid node while compiling a model. Please ensure the "
    "input model is not already compiled."
)
ERROR_MEMORY = (
    "[ONNXRuntimeError] : 11 : EP_FAIL : Failed to finalize QNN graph. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory "
    "allocation related error., Code: 1002"
)

LOG_NOISE = (
    "[W] qnn_execution_provider.cc:933 QnnEp] File mapped weights feature is only available on Windows arm64 devices "
    "for QNN API versions >= 2.32. Feature will be disabled by default"
)
LOG_FLOAT_ON_V68 = (
    LOG_NOISE,
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> The SocModel doesn't support FP16",
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> The SocModel doesn't support FP16",
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> QnnBackend_validateOpConfig failed 3110",
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> Failed to validate op stem_token_1 with error 0xc26",
    (
        "[W] qnn_model_wrapper.cc:565 CreateQnnNode] QNN.backendValidateOpConfig() failed for node "
        "`stem_token_1` of type "
        "`Conv2d` with error code 3110"
    ),
    (
        "[V] qnn_execution_provider.cc:1713 LogNodeSupport] Validation FAILED for 1 nodes in OrtNodeUnit (Conv) :\n"
        "\tOperator type: Conv Node name: stem_token_1 Node index: 3\n"
        "\tREASON : Failed to add node."
    ),
    (
        "[E] qnn_execution_provider.cc:2453 GetCapabilityImpl] Unsupported nodes in QNN EP: "
        "{ name: stem_token_1, type: Conv }{ name: curve, type: Sigmoid }"
    ),
)
LOG_WIDE_WEIGHTS = (
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> [4294967295] has incorrect Value 68, expected >= 73.",
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> QnnBackend_validateOpConfig failed 3110",
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> Failed to validate op stem_token_1 with error 0xc26",
)
LOG_MISH = (
    (
        "[V] qnn_execution_provider.cc:1713 LogNodeSupport] Validation FAILED for 1 nodes in OrtNodeUnit (Mish) :\n"
        "\tOperator type: Mish Node name: curve Node index: 6\n"
        "\tREASON : Operators of type `Mish` are not supported by QNN EP.Mish node `curve` will not be assigned "
        "to QNN EP."
    ),
    "[E] qnn_execution_provider.cc:2453 GetCapabilityImpl] Unsupported nodes in QNN EP: { name: curve, type: Mish }",
    (
        "[E] qnn_execution_provider.cc:2453 GetCapabilityImpl] Unsupported nodes in QNN EP: { name: "
        "QNNExecutionProvider_QNNExecutionProvider_6976968079519245865_0_0, type: "
        "QNNExecutionProvider_6976968079519245865_0 }"
    ),
)
LOG_MEMORY = (
    (
        "[V] qnn_backend_manager.cc:519 QnnLogging] tcm_migration.cc:2394::ERROR:Operator named q::*InputSlice "
        "(0x...) not "
        "sufficiently tiled to fit in TCM. Requires 32000000 bytes"
    ),
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> RouterX86 graph prepare failed 17",
)
LOG_UNMADE = (
    "[V] qnn_backend_manager.cc:519 QnnLogging] graph_prepare.cc:211::ERROR:could not create op: q::Select.exe.tcm",
    '[V] qnn_backend_manager.cc:519 QnnLogging] <E> "curve_cell0_forward" generated: could not create op',
    "[V] qnn_backend_manager.cc:519 QnnLogging] <E> RouterX86 graph prepare failed 12",
    (
        "[V] qnn_backend_manager.cc:519 QnnLogging] <E> graphMainFinalizePostPrepare: prepare failed (err=1002), "
        "skipping post-prepare steps"
    ),
)

TRACE_SINH = """{
  "backend_type": "htp", "model_name": "<in-memory>", "schema_version": 2,
  "subgraph_traces": [
    {"graph_name": "QNNExecutionProvider_0_0", "op_mappings": [
      {"dst_name": "stem_token_1", "dst_qnn_op_type": "Conv2d", "node_group_type": "OrtNodeUnit", "sources": [
        {"name": "x/dequantized", "type": "OP"}, {"name": "w/dequantized", "type": "OP"},
        {"name": "stem", "type": "OP"},
        {"name": "stem_token_1", "type": "OP"}, {"name": "stem_out", "type": "TENSOR"},
        {"name": "stem_out/quantized", "type": "OP"}]},
      {"dst_name": "Transpose_token_3", "dst_qnn_op_type": "Transpose", "node_group_type": "OrtNodeUnit", "sources": [
        {"name": "Transpose_token_3", "type": "OP"}]}]}],
  "summary": {"fusion_count": {"OrtNodeUnit": 7}, "qnn_subgraphs": 2, "supported_nodes": 14, "total_onnx_nodes": 15,
    "total_qnn_ops": 7, "total_socs": 1, "unsupported_nodes": 1},
  "unsupported_nodes": [{"node_index": 6, "node_name": "curve", "op_type": "Sinh", "reason":
    "Operators of type `Sinh` are not supported by QNN EP.Sinh node `curve` will not be assigned to QNN EP."}]
}"""

PROFILE = """Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier
0,FINALIZE,35730,US,BACKEND,ROOT,QNN (finalize) time
0,BACKEND,0,US,BACKEND,ROOT,Performance Estimates
0,BACKEND,12309,CYCLES,BACKEND,SUB-EVENT,Simulated (Accelerator exec cycles)
0,BACKEND,10933,CYCLES,BACKEND,SUB-EVENT,Simulated (Accelerator exec cycles (lower estimate))
0,BACKEND,14068,CYCLES,BACKEND,SUB-EVENT,Simulated (Accelerator exec cycles (upper estimate))
0,BACKEND,8,US,BACKEND,SUB-EVENT,Simulated (Accelerator exec time us)
0,BACKEND,7,US,BACKEND,SUB-EVENT,Simulated (Accelerator exec time us (lower estimate))
0,BACKEND,9,US,BACKEND,SUB-EVENT,Simulated (Accelerator exec time us (upper estimate))
0,BACKEND,30720,BYTES,BACKEND,SUB-EVENT,Input Fill
0,BACKEND,0,BYTES,BACKEND,SUB-EVENT,Intermediate Spill
0,BACKEND,2048,BYTES,BACKEND,SUB-EVENT,Output Spill
"""


def small_model(curve: str = "Sigmoid") -> onnx.ModelProto:
    """Conv ``stem`` of 8-bit integers and an operator ``curve`` behind it, quantisers around both."""
    text = f"""
    <ir_version: 10, opset_import: ["" : 22]>
    small (float[N, 1, 4, 4] x) => (float[N, 1, 4, 4] y)
    <float s = {{0.1}}, uint8 z = {{128}}, float ws = {{0.1}}, int8 wz = {{0}}, int8[1, 1, 1, 1] codes = {{3}}> {{
      [first] q = QuantizeLinear(x, s, z)
      ["x/dequantized"] d = DequantizeLinear(q, s, z)
      ["w/dequantized"] w = DequantizeLinear(codes, ws, wz)
      [stem] c = Conv(d, w)
      ["stem_out/quantized"] cq = QuantizeLinear(c, s, z)
      ["stem_out/dequantized"] cd = DequantizeLinear(cq, s, z)
      [curve] e = {curve}(cd)
      ["curve_out/quantized"] eq = QuantizeLinear(e, s, z)
      [last] y = DequantizeLinear(eq, s, z)
    }}"""
    model: onnx.ModelProto = parser.parse_model(text)
    return model
