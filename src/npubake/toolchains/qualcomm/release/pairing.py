"""Qualcomm toolchain: whether wrapper, binary and contract are of one compile, by what each says. Data in, faults out.

The vendor's loader asks none of this on a PC: a binary of another SoC or SDK runs in the emulator without a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER

CONTEXT = "EPContext"
NAMES = {"wrapper": WRAPPER, "binary": BINARY}  # of the contract's files
COMPATIBILITY = "ep_compatibility_info."  # onnxruntime's property, followed by the provider's name
_HINT = "wrapper, binary and contract are not of one build; take them from the build again"


def require_files(contract: Mapping[str, Any], files: Mapping[str, bytes], where: str = "") -> None:
    """files: ``wrapper`` and ``binary``. Raises StageError, all faults at once, where they are not the contract's, or
    the wrapper does not name the binary.
    """
    faults = [
        Fault(where=f"{where}{NAMES[name]}", what=f"sha256 {found}, the contract has {entry['sha256']}", hint=_HINT)
        for name, entry in contract["files"].items()
        if (found := hashlib.sha256(files[name]).hexdigest()) != entry["sha256"]
    ]
    faults += [
        Fault(where=f"{where}contract", what=f"it names the {name} {entry['name']!r}, not {NAMES[name]!r}", hint=_HINT)
        for name, entry in contract["files"].items()
        if entry["name"] != NAMES[name]
    ]
    faults += [
        Fault(where=f"{where}{WRAPPER}", what=what, hint=_HINT) for what in _wrapper_faults(contract, files["wrapper"])
    ]
    if faults:
        raise StageError(*faults)


def require_metadata(contract: Mapping[str, Any], metadata: Mapping[str, Any], where: str = "") -> None:
    """metadata: read from the binary. Raises StageError, all faults at once, for SoC, SDK build, graph, or an edge's
    dtype, shape, scale or zero point that is not the contract's.
    """
    faults = [
        Fault(where=f"{where}{BINARY}", what=f"{label}: the binary says {found}, the contract {wanted}", hint=_HINT)
        for label, found, wanted in _said(contract, metadata)
        if found != wanted
    ]
    if faults:
        raise StageError(*faults)


def _wrapper_faults(contract: Mapping[str, Any], data: bytes) -> Iterator[str]:
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        yield f"it is no ONNX model: {error}"
        return
    contexts = [node for node in model.graph.node if node.op_type == CONTEXT]
    others = [node.name or node.op_type for node in model.graph.node if node.op_type != CONTEXT]
    if len(contexts) != 1 and not contract["cpu_nodes"]:
        yield f"{len(contexts)} nodes of compiled parts, wanted one"
    if others and not contract["cpu_nodes"]:
        yield f"nodes that the CPU would run: {', '.join(others[:5])}"
    yield from _stated_faults(contract, model, contexts)
    renamed = contract.get("binary_names", {})  # by the SDK's converters, where the contract keeps the model's names
    for side, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        held = [(value.name, *_form(value)) for value in values]
        said = [
            (renamed.get(entry["name"], entry["name"]), entry["dtype"], tuple(entry["valid_shape"]))
            for entry in contract[side]
        ]
        if held != said:
            yield f"its {side} are {held}, the contract's {said}"


def _stated_faults(
    contract: Mapping[str, Any], model: onnx.ModelProto, contexts: Sequence[onnx.NodeProto]
) -> Iterator[str]:
    """The binary's name and the SDK's build in each compiled node, and the SDK's version in the model's properties."""
    for node in contexts:
        stated = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        for name, wanted in (("ep_cache_context", BINARY), ("ep_sdk_version", contract["build"]["qnn_build_id"])):
            found = stated.get(name, b"")
            text = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
            if text and text != wanted:  # of several nodes one holds the file's name
                yield f"{name} is {text!r}, wanted {wanted!r}"
    for entry in model.metadata_props:
        version = entry.value.split(":")[2:3]  # form:backend:QNN:HTP:arch:SoC:...
        if entry.key.startswith(COMPATIBILITY) and version != [contract["build"]["qnn"]]:
            yield f"{entry.key} is {entry.value!r}, wanted QNN {contract['build']['qnn']}"


def _form(value: onnx.ValueInfoProto) -> tuple[str, tuple[int, ...]]:
    kind = value.type.tensor_type
    return str(helper.tensor_dtype_to_np_dtype(kind.elem_type)), tuple(dim.dim_value for dim in kind.shape.dim)


def _said(contract: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(what, as the binary has it, as the contract has it)."""
    yield "SoC", str(metadata["soc_model"]), contract["platform"]["soc_model"]
    yield "QNN build", metadata["build_id"], contract["build"]["qnn_build_id"]
    graphs = metadata["graphs"]
    yield "graph", graphs[0]["name"], contract["htp"]["graph"]
    for side in ("inputs", "outputs"):
        held = {tensor["name"]: tensor for graph in graphs for tensor in graph[side]}
        if not contract["cpu_nodes"]:  # else an edge may be a CPU node's, and the binary has edges towards such nodes
            yield side, sorted(held), sorted(entry["name"] for entry in contract[side])
        for entry in contract[side]:
            if entry["name"] in held:
                yield f"{side} {entry['name']}", _tensor(held[entry["name"]]), _edge(entry)


def _tensor(tensor: Mapping[str, Any]) -> tuple[str, tuple[int, ...], float | None, int | None]:
    scale, offset = tensor["scale"], tensor["offset"]
    return (
        tensor["dtype"],
        tuple(tensor["shape"]),
        None if scale is None else float(np.float32(scale)),
        None if offset is None else -offset,
    )


def _edge(entry: Mapping[str, Any]) -> tuple[str, tuple[int, ...], float | None, int | None]:
    scale = entry["scale"]
    return entry["dtype"], tuple(entry["valid_shape"]), None if scale is None else scale[0], entry["zero_point"]
