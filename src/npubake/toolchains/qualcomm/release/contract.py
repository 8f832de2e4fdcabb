"""Qualcomm toolchain: the runtime contract, what an application must know to feed and read the binary. JSON in, JSON
out.

Shapes and dtypes are the wrapper's own, scales and offsets those read back from the binary (QNN: real = scale * (code +
offset), so that zero_point = -offset). Where the binary takes or gives integers and the model floats, ``removed`` holds
the quantiser that is the application's, in the form that ``layout.edges`` computes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.toolchains import pictures
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER
from npubake.toolchains.qualcomm.probe import NAME
from npubake.toolchains.qualcomm.release.deployment import checklist, licence_text, runtime_needs

CONTRACT_VERSION = 1
_PLANES = {"gray": ("gray",), "nv12": ("y", "uv")}
_NOTES = {
    "edges": "dense tensors, rows without padding; the names are the wrapper's and the binary's",
    "exact": "the emulator repeats itself to the bit; whether a board's HTP gives the same bits is found on a board",
}


def build_contract(
    wrapper: onnx.ModelProto,
    files: Mapping[str, bytes],
    metadata: Mapping[str, Any],
    record: Mapping[str, Any],
    params: Mapping[str, Any],
) -> dict[str, Any]:
    """The contract of a compiled model. files: ``wrapper`` and ``binary``; metadata: read back from the binary; record:
    ``adapt``'s; params: ``compile_htp``'s.

    Raises StageError, all faults at once, for an edge that the record or the metadata does not know.
    """
    graph = metadata["graphs"][0]
    edges = {
        side: _edges(side, getattr(wrapper.graph, side.removesuffix("s")), graph[side], record[side])
        for side in ("inputs", "outputs")
    }
    runtime = record["runtime_inputs"]
    contract: dict[str, Any] = {
        "version": CONTRACT_VERSION,
        "toolchain": {"name": NAME, "version": metadata["tools"].get("onnxruntime_qnn", metadata["tools"]["qnn"])},
        "platform": _platform(params),
        "lane": record["lane"],
        "io": record["io"],
        "exact": False,
        "float_nodes": [],
        "inputs": edges["inputs"],
        "outputs": edges["outputs"],
        "runtime_inputs": runtime,
        "removed": [
            entry
            for side in ("inputs", "outputs")
            for edge in edges[side]
            if edge.get("model_input", "") not in runtime and (entry := _quantiser(side, edge)) is not None
        ],
        "files": {name: _file(WRAPPER if name == "wrapper" else BINARY, data) for name, data in files.items()},
        "htp": _htp(metadata, graph, params),
        "build": {"qnn_build_id": metadata["build_id"], **metadata["tools"]},
        "cpu_nodes": list((params.get("options") or {}).get("cpu_nodes", ())),
        "runtime": runtime_needs(_words(params["platform"]["march"]), metadata["tools"]["qnn"]),
        "licence": licence_text(metadata["tools"]),
        "checklist": checklist(),
        "notes": _NOTES,
    }
    return {**contract, "preprocessing": pictures.picture_block(params.get("preset"), _layouts(params), contract)}


def contract_bytes(contract: Mapping[str, Any]) -> bytes:
    """Canonical JSON of a contract."""
    return (json.dumps(contract, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def _edges(
    side: str,
    values: Sequence[onnx.ValueInfoProto],
    tensors: Sequence[Mapping[str, Any]],
    known: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Every input or output of the wrapper, in its order, with what the binary says of it."""
    by_name = {tensor["name"]: tensor for tensor in tensors}
    faults = [
        Fault(
            where=f"{side}: {value.name}",
            what=f"the wrapper has this tensor, {place} does not",
            hint="wrapper, binary and record are not of one compile: report it",
        )
        for value in values
        for place, names in (("the binary", by_name), ("the record of adapt", known))
        if value.name not in names
    ]
    if faults:
        raise StageError(*faults)
    return [_edge(value, by_name[value.name], known[value.name]) for value in values]


def _edge(value: onnx.ValueInfoProto, tensor: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    kind = value.type.tensor_type
    shape = [dim.dim_value for dim in kind.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    scale, offset = tensor.get("scale"), tensor.get("offset")
    entry = {
        "name": value.name,
        "valid_shape": shape,
        "dtype": str(dtype),
        "stride": dense_stride(shape, dtype.itemsize),
        "aligned_byte_size": math.prod(shape) * dtype.itemsize,
        "scale": None if scale is None else [float(np.float32(scale))],
        "zero_point": None if offset is None else -int(offset),
        "axis": None,
    }
    if "model_output" in known:
        return {**entry, "model_output": known["model_output"]}
    planes = _PLANES.get(known["kind"], ("",))
    plane = planes[-1] if value.name.endswith("_uv") else planes[0]
    return {**entry, "kind": known["kind"], "plane": plane, "model_input": known["model_input"]}


def dense_stride(shape: Sequence[int], size: int) -> list[int]:
    """Bytes from one element to the next along each axis of a dense tensor in C order. size: bytes an element."""
    return [size * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _quantiser(side: str, edge: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the application does at an edge of integers, where the model's own tensor is float32."""
    if edge["scale"] is None or np.dtype(edge["dtype"]).kind not in "iu":
        return None
    inward = side == "inputs"
    return {
        "side": side,
        "tensor": edge["name"],
        "op_type": "QuantizeLinear" if inward else "DequantizeLinear",
        "affine": {"scale": edge["scale"], "zero_point": edge["zero_point"], "axis": None},
        "dtype": edge["dtype"] if inward else "float32",
        "shape": edge["valid_shape"],
        "before_dtype": "float32",
        "before_shape": edge["valid_shape"],
        "why": "io: quantized",
    }


def _platform(params: Mapping[str, Any]) -> dict[str, str]:
    facts, sdk = params["platform"], params.get("sdk") or {}
    return {
        "platform": facts["name"],
        "soc_model": str(facts["soc_model"]),
        "march": str(facts["march"]),
        "sdk": sdk.get("version") or "",
        "bsp": sdk.get("bsp") or "",
        "runtime_package": sdk.get("runtime_package") or "",
    }


def _htp(metadata: Mapping[str, Any], graph: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """soc_models, arch: what was asked for; soc_model: what the binary says of itself."""
    facts = params["platform"]
    return {
        "soc_models": [int(word) for word in _words(facts["soc_model"])],
        "arch": _words(facts["march"]),
        "soc_model": metadata["soc_model"],
        "vtcm_bytes": facts["vtcm_bytes"],
        "graph": graph["name"],
    }


def _words(text: object) -> list[str]:
    return str(text).split(",")


def _layouts(params: Mapping[str, Any]) -> Mapping[str, str]:
    return params.get("layouts") or {}


def _file(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
