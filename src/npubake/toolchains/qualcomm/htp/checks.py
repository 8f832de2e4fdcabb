"""Qualcomm toolchain: what is held against a compiled artifact before anybody may use it. Facts in; faults out. Pure.

Each check answers with its faults; ``compiling`` raises all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from npubake.errors import Fault, RecipeError
from npubake.nearest import did_you_mean
from npubake.toolchains.qualcomm.facts import HtpPlatform
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER
from npubake.toolchains.qualcomm.htp.metadata import Graph, Metadata, Tensor
from npubake.toolchains.qualcomm.htp.operators import Operators, label

_CONTEXT = ("EPContext", "com.microsoft")
_INT4 = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)


def refuse_unknown_nodes(named: Sequence[str], operators: Operators) -> None:
    """Raises RecipeError for a name of ``cpu_nodes`` that is no node of the model."""
    faults = []
    for name in named:
        if name not in operators.nodes:
            hint = did_you_mean(name, operators.users())
            path = "$.toolchain_options.qualcomm.cpu_nodes"
            faults.append(Fault(what=f"the model has no node {name!r}", path=path, hint=hint))
    if faults:
        raise RecipeError(*faults)


def weights_without_zero_point(model: onnx.ModelProto) -> list[Fault]:
    """4-bit weights whose DequantizeLinear has no zero point: the compiler takes them and computes nonsense (QNN
    2.51.0, -12 dB), with a zero point of 0 it is right.
    """
    types = {one.name: one.data_type for one in model.graph.initializer}
    return [
        Fault(
            what="the 4-bit weight has no zero point, and would be compiled wrongly", where=node.name or node.output[0]
        )
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and types.get(node.input[0]) in _INT4 and len(node.input) < 3
    ]


def wrapper_faults(wrapper: onnx.ModelProto, operators: Operators, named: Sequence[str]) -> list[Fault]:
    """Exactly one compiled node and nothing beside it; with ``cpu_nodes``, at least one, and beside it no operator but
    those. Quantisers around a node that is left stay with it.
    """
    compiled = [node for node in wrapper.graph.node if (node.op_type, node.domain) == _CONTEXT]
    left = [node for node in wrapper.graph.node if (node.op_type, node.domain) != _CONTEXT]
    faults = []
    if not compiled or (len(compiled) > 1 and not named):
        faults.append(Fault(what=f"the artifact holds {len(compiled)} compiled graphs, not one", where=WRAPPER))
    for node in left:
        found = operators.find(node.name or node.output[0]) or node
        if (found.name or found.output[0]) not in named:
            what = f"node {label(found)} was left on the CPU"
            hint = "replace it, or name it in toolchain_options.qualcomm.cpu_nodes"
            faults.append(Fault(what=what, where=found.name, hint=hint))
    return list(dict.fromkeys(faults))


def left_on_cpu(wrapper: onnx.ModelProto, operators: Operators) -> list[str]:
    """Names of the operators that the wrapper still holds, in its order."""
    left = [node for node in wrapper.graph.node if (node.op_type, node.domain) != _CONTEXT]
    found = [operators.find(node.name or node.output[0]) or node for node in left]
    return list(dict.fromkeys(node.name or node.output[0] for node in found))


def metadata_faults(metadata: Metadata, platform: HtpPlatform) -> list[Fault]:
    """SoC, architecture and build id as read back; the parts for several SoCs equal in what they take and give."""
    faults = []
    if metadata.soc_models != platform.soc_models:
        what = f"the binary is for soc_model {_list(metadata.soc_models)}, not {_list(platform.soc_models)}"
        faults.append(Fault(what=what, where=BINARY))
    for part, arch in zip(metadata.parts, platform.arch, strict=False):
        if part.arch != arch:
            what = f"the binary for soc_model {part.soc_model} is for HTP {part.arch}, not {arch}"
            faults.append(Fault(what=what, where=BINARY))
    for part in metadata.parts:
        if not part.build_id:
            faults.append(Fault(what="the binary names no build of QNN", where=BINARY))
        if part.graphs != metadata.parts[0].graphs or part.build_id != metadata.parts[0].build_id:
            what = f"the binary for soc_model {part.soc_model} takes, gives or was built by other than the first"
            faults.append(Fault(what=what, where=BINARY))
    return faults


def application_edges(metadata: Metadata, wrapper: onnx.ModelProto, record: Mapping[str, Any]) -> Graph:
    """What an application feeds and reads: the tensors of the binary's graphs that are the wrapper's own. One that no
    graph has belongs to a node on the CPU; dtype and shape are then the wrapper's, the scale is the record's.
    """
    graphs = metadata.parts[0].graphs
    inputs = {tensor.name: tensor for graph in graphs for tensor in graph.inputs}
    outputs = {tensor.name: tensor for graph in graphs for tensor in graph.outputs}
    return Graph(
        name=graphs[0].name if graphs else "",
        inputs=tuple(inputs.get(one.name) or _outside(one, record["inputs"]) for one in wrapper.graph.input),
        outputs=tuple(outputs.get(one.name) or _outside(one, record["outputs"]) for one in wrapper.graph.output),
    )


def graph_faults(metadata: Metadata, named: Sequence[str]) -> list[Fault]:
    """One graph, unless nodes between two may stay on the CPU."""
    count = len(metadata.parts[0].graphs)
    if count == 1 or (count and named):
        return []
    return [Fault(what=f"the binary holds {count} graphs, not one", where=BINARY)]


def edge_faults(edges: Graph, record: Mapping[str, Any]) -> list[Fault]:
    """Inputs and outputs are those of ``adapt``'s record: names, dtypes, shapes, scales, offsets."""
    faults = []
    for side, tensors in (("inputs", edges.inputs), ("outputs", edges.outputs)):
        planned: Mapping[str, Mapping[str, Any]] = record[side]
        found = {tensor.name: tensor for tensor in tensors}
        for name in sorted(set(planned) ^ set(found)):
            what = (
                f"{side[:-1]} {name} is {'not in the binary' if name in planned else 'in the binary, and not planned'}"
            )
            faults.append(Fault(what=what, where=BINARY))
        for name in sorted(set(planned) & set(found)):
            faults += _tensor_faults(side[:-1], found[name], planned[name])
    return faults


def _outside(value: onnx.ValueInfoProto, planned: Mapping[str, Mapping[str, Any]]) -> Tensor:
    kind = value.type.tensor_type
    known = planned.get(value.name, {"scale": None, "zero_point": None})
    return Tensor(
        name=value.name,
        dtype=str(helper.tensor_dtype_to_np_dtype(kind.elem_type)),
        qnn_dtype="",
        shape=tuple(size.dim_value for size in kind.shape.dim),
        scale=known["scale"],
        offset=None if known["zero_point"] is None else -int(known["zero_point"]),
    )


def _tensor_faults(side: str, found: Tensor, planned: Mapping[str, Any]) -> list[Fault]:
    zero_point = None if found.offset is None else -found.offset
    pairs: Iterable[tuple[str, Any, Any]] = (
        ("dtype", found.dtype, planned["dtype"]),
        ("shape", list(found.shape), list(planned["shape"])),
        ("scale", _float32(found.scale), _float32(planned["scale"])),
        ("zero point", zero_point, planned["zero_point"]),
    )
    return [
        Fault(what=f"{side} {found.name} has {fact} {is_so} in the binary, and {planned_so} was planned", where=BINARY)
        for fact, is_so, planned_so in pairs
        if is_so != planned_so
    ]


def _float32(value: float | None) -> float | None:
    return None if value is None else float(np.float32(value))


def _list(values: Iterable[int]) -> str:
    return ",".join(str(value) for value in values)
