"""Reference toolchain: the runtime contract, what an application must know to feed and read the model. JSON in, JSON
out.

Built from the model's own inputs and outputs, the quantize record and the platform's facts; ``check_contract`` compares
a contract that was read back with the model and the platform, by itself and not by building it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.layout.l2m import l2m_faults
from npubake.layout.memory_plan import model_intervals, plan_memory
from npubake.layout.strides import FEATURE_MAP_NOTE, Role, TensorLayout, tensor_layout
from npubake.toolchains import pictures
from npubake.toolchains.reference.platform_facts import PlatformFacts
from npubake.toolchains.reference.probe import NAME, VERSION

CONTRACT_VERSION = 2
_PLANES = {"nv12": ("y", "uv"), "gray": ("gray",)}


def build_contract(
    model: onnx.ModelProto, data: bytes, record: Mapping[str, Any], facts: PlatformFacts
) -> dict[str, Any]:
    """The contract of ``model`` (serialised: ``data``) on a platform.

    Raises StageError for an L2M request that the platform cannot serve, or a tensor whose shape is unknown.
    """
    faults = l2m_faults(facts.requested_l2m_bytes, facts.max_l2m_bytes, facts.identity.platform)
    if faults:
        raise StageError(*faults)
    removed = record["removed"]
    runtime = {name: RuntimeInput.from_facts(name, entry) for name, entry in record["runtime_inputs"].items()}
    planes = {tensor: spec for spec in runtime.values() for tensor in spec.tensors}
    contract: dict[str, Any] = {
        "version": CONTRACT_VERSION,
        "toolchain": {"name": NAME, "version": VERSION},
        "platform": facts.identity_json(),
        "core_num": facts.core_num,
        "platform_tail": record["tail"],
        "exact": not record["float_nodes"],
        "float_nodes": record["float_nodes"],
        "inputs": [_input(value, planes.get(value.name), removed, facts) for value in model.graph.input],
        "outputs": [_output(value, removed, facts) for value in model.graph.output],
        "runtime_inputs": record["runtime_inputs"],
        "removed": removed,
        "memory": _memory(model, facts),
        "model": {"entry": "model.onnx", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)},
        "notes": {"feature_maps": FEATURE_MAP_NOTE},
    }
    return {**contract, "preprocessing": pictures.picture_block(facts.preset, facts.layouts, contract)}


def value_facts(value: onnx.ValueInfoProto) -> tuple[tuple[int, ...], str]:
    """(shape, numpy dtype name) of a graph input or output."""
    tensor = value.type.tensor_type
    return tuple(dim.dim_value for dim in tensor.shape.dim), str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _input(
    value: onnx.ValueInfoProto, spec: RuntimeInput | None, removed: list[dict[str, Any]], facts: PlatformFacts
) -> dict[str, Any]:
    shape, dtype = value_facts(value)
    kind = "tensor" if spec is None else spec.type
    role: Role = "image" if kind in _PLANES else "input"
    plane = "" if spec is None or kind not in _PLANES else _PLANES[kind][spec.tensors.index(value.name)]
    entry = _tensor(value.name, tensor_layout(shape, dtype, facts.memory, role), _affine(value.name, "inputs", removed))
    return {**entry, "kind": kind, "plane": plane, "model_input": value.name if spec is None else spec.name}


def _output(value: onnx.ValueInfoProto, removed: list[dict[str, Any]], facts: PlatformFacts) -> dict[str, Any]:
    shape, dtype = value_facts(value)
    layout = tensor_layout(shape, dtype, facts.memory, "output")
    return _tensor(value.name, layout, _affine(value.name, "outputs", removed))


def _tensor(name: str, layout: TensorLayout, affine: Mapping[str, Any] | None) -> dict[str, Any]:
    """scale and zero_point are null for a tensor that is not quantised: image bytes, or real values."""
    laid = asdict(layout)
    numbers = affine or {"scale": None, "zero_point": None, "axis": None}
    return {
        "name": name,
        "valid_shape": list(laid["valid_shape"]),
        "dtype": laid["dtype"],
        "stride": list(laid["stride"]),
        "aligned_byte_size": laid["aligned_byte_size"],
        "scale": None if numbers["scale"] is None else list(numbers["scale"]),
        "zero_point": numbers["zero_point"],
        "axis": numbers["axis"],
    }


def _affine(tensor: str, side: str, removed: list[dict[str, Any]]) -> Mapping[str, Any] | None:
    """How the integers of an edge are read: the innermost removal at that edge says it."""
    entries = [entry for entry in removed if entry["tensor"] == tensor and entry["side"] == side]
    return entries[-1]["affine"] if entries else None


def _memory(model: onnx.ModelProto, facts: PlatformFacts) -> dict[str, Any]:
    unit = facts.memory.tensor_unit_bytes
    plan = plan_memory(model_intervals(model, unit))
    return {
        "of": "tensors of the reference toolchain's integer model, constants not counted",
        "unit_bytes": unit,
        "peak_bytes": plan.peak_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "l2m_cap_bytes": facts.max_l2m_bytes,
        "l2m_requested_bytes": facts.requested_l2m_bytes,
        "fits_l2m": None if facts.max_l2m_bytes is None else plan.peak_bytes <= facts.max_l2m_bytes,
        "placements": [
            {
                "name": entry.interval.name,
                "offset": entry.offset,
                "bytes": entry.interval.size,
                "first": entry.interval.first,
                "last": entry.interval.last,
            }
            for entry in plan.placements
        ],
    }


def layout_of(entry: Mapping[str, Any]) -> TensorLayout:
    """The layout that a contract's tensor entry states."""
    return TensorLayout(
        valid_shape=tuple(entry["valid_shape"]),
        dtype=entry["dtype"],
        stride=tuple(entry["stride"]),
        aligned_byte_size=entry["aligned_byte_size"],
        role="image" if entry.get("plane") else "input",
    )


def check_contract(contract: Mapping[str, Any], model: onnx.ModelProto, facts: PlatformFacts) -> None:
    """What a package says, against the model in it and the platform it is for. Raises StageError with all faults."""
    faults = [
        _fault("platform", name, contract["platform"][name], wanted)
        for name, wanted in facts.identity_json().items()
        if contract["platform"][name] != wanted
    ]
    for side, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        said = [(entry["name"], tuple(entry["valid_shape"]), entry["dtype"]) for entry in contract[side]]
        held = [(value.name, *value_facts(value)) for value in values]
        if said != held:
            faults.append(_fault(side, "tensors", said, held))
    for entry in contract["inputs"]:
        unit = facts.memory.nv12_stride_bytes
        row = 1 if entry["plane"] in ("y", "uv") else 2
        if entry["plane"] and any(size % unit for size in entry["stride"][: row + 1]):
            faults.append(_fault(entry["name"], "stride", entry["stride"], f"multiples of {unit}"))
    for entry in (*contract["inputs"], *contract["outputs"]):
        padded = not (facts.memory.input_no_padding if "plane" in entry else facts.memory.output_no_padding)
        if padded and not entry.get("plane") and entry["aligned_byte_size"] % facts.memory.tensor_unit_bytes:
            wanted = f"a multiple of {facts.memory.tensor_unit_bytes}"
            faults.append(_fault(entry["name"], "aligned byte size", entry["aligned_byte_size"], wanted))
    if contract["core_num"] != facts.core_num:
        faults.append(_fault("platform", "core_num", contract["core_num"], facts.core_num))
    preset = pictures.expanded(contract["preprocessing"])
    if preset != facts.preset:
        faults.append(_fault("preprocessing", "preset", preset, facts.preset))
    if contract["platform_tail"] != facts.tail:
        faults.append(_fault("outputs", "platform_tail", contract["platform_tail"], facts.tail))
    faults += _tail_faults(contract, model, facts)
    if faults:
        raise StageError(*faults)


def _tail_faults(contract: Mapping[str, Any], model: onnx.ModelProto, facts: PlatformFacts) -> list[Fault]:
    """int32 platforms dequantise no accumulator; float32 ones give int32 only where the recipe removed Dequantize."""
    makers = {name: node for node in model.graph.node for name in node.output}
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    removed = {entry["tensor"] for entry in contract["removed"] if entry["op_type"] == "DequantizeLinear"}
    faults = []
    for entry in contract["outputs"]:
        maker = makers.get(entry["name"])
        accumulator = (
            maker is not None
            and maker.op_type == "DequantizeLinear"
            and kinds.get(maker.input[0]) == onnx.TensorProto.INT32
        )
        if facts.tail == "int32" and accumulator:
            faults.append(_fault(entry["name"], "tail", "float32 behind an int32 accumulator", "int32"))
        if facts.tail == "float32" and entry["dtype"] == "int32" and entry["name"] not in removed:
            faults.append(_fault(entry["name"], "tail", "int32", "float32"))
    return faults


def _fault(where: str, label: str, found: object, wanted: object) -> Fault:
    return Fault(
        where=where,
        what=f"{label}: the package says {found}, the model or platform {wanted}",
        hint="this is a fault of the reference toolchain or of the record it was given; nothing was released",
    )
