"""Qualcomm toolchain: AIMET's QDQ model in this project's names, and the forms in it that the compiler takes wrongly.

As in ``quant.qdq``, a tensor ``t`` keeps its name and has ``t/quantized`` and ``t/dequantized``; weights and constants
become ``w/quantized`` and ``w/dequantized``. A graph output keeps its name: its maker writes ``t/float``, its
DequantizeLinear the output, and nodes that read it too have ``t/dequantized`` of their own. AIMET names the scale of
``t`` ``t_scale``, by which its quantisers are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from npubake.errors import Fault, StageError
from npubake.graph.naming import all_names
from npubake.graph.summary import Provenance

_SCALE = "_scale"
_DTYPES: Mapping[int, str] = {
    TensorProto.UINT4: "uint4",
    TensorProto.INT4: "int4",
    TensorProto.UINT8: "uint8",
    TensorProto.INT8: "int8",
    TensorProto.UINT16: "uint16",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiser:
    """What one tensor is held in. scale: one, or one a channel of ``axis``; zero_point: as many.

    constant: the integers stand in the model (a weight, a bias or another constant).
    """

    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None
    constant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """provenance: tensor of the float model -> what its readers see in ``model``."""

    model: onnx.ModelProto
    quantisers: Mapping[str, Quantiser]
    provenance: tuple[Provenance, ...]


def renamed(floating: onnx.ModelProto, quantised: onnx.ModelProto) -> Renamed:
    """AIMET's ``quantised`` (untouched) of the model ``floating``, in this project's names.

    Raises StageError where it is not made of ``floating``: another node, input, output or quantised tensor.
    """
    _check_same_graph(floating, quantised)
    model = onnx.ModelProto()
    model.CopyFrom(quantised)
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    owners = _owners(model, all_names(floating))
    names = _new_names(owners, {entry.name for entry in floating.graph.output})
    quantisers = {
        owner: _quantiser(node, initializers) for node, owner in owners.values() if node.op_type == "DequantizeLinear"
    }
    _rename(model, owners, names)
    for entry in floating.graph.output:
        _part_readers(model, entry.name)
    _check_unique(model)
    return Renamed(model=model, quantisers=quantisers, provenance=tuple(_provenance(floating, quantisers)))


def form_faults(quantisers: Mapping[str, Quantiser], model: onnx.ModelProto) -> Iterator[Fault]:
    """What the compiler would take and compute wrongly: a quantiser without a zero point, int4 with one scale."""
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) < 3:
            hint = "An int4 weight without one compiles, and computes noise (QNN 2.51.0)."
            yield Fault(what=f"{node.name} has no zero point", where=node.name, hint=hint)
    for name, entry in quantisers.items():
        if entry.dtype in ("int4", "uint4") and entry.axis is None:
            hint = "The HTP takes int4 with a scale for each output channel; take a lane of 8-bit weights."
            yield Fault(what=f"{name} has int4 values with one scale", where=name, hint=hint)


def _check_same_graph(floating: onnx.ModelProto, quantised: onnx.ModelProto) -> None:
    sides = [
        (
            [(node.name, node.op_type) for node in model.graph.node if not _is_quantiser(node)],
            [entry.name for entry in model.graph.input],
            [entry.name for entry in model.graph.output],
        )
        for model in (floating, quantised)
    ]
    for what, old, new in zip(("nodes", "inputs", "outputs"), *sides, strict=True):
        if sorted(old) != sorted(new):
            changed = sorted({str(entry) for entry in set(old) ^ set(new)})
            raise StageError(Fault(what=f"AIMET's model has other {what}: {', '.join(changed[:8])}", where=changed[0]))


def _is_quantiser(node: onnx.NodeProto) -> bool:
    return node.op_type in ("QuantizeLinear", "DequantizeLinear")


def _owners(model: onnx.ModelProto, known: set[str]) -> dict[str, tuple[onnx.NodeProto, str]]:
    """Node name -> the quantiser node, and the float tensor that it stands on."""
    found = {}
    for node in model.graph.node:
        if _is_quantiser(node):
            owner = node.input[1].removesuffix(_SCALE)
            if owner not in known or not node.input[1].endswith(_SCALE):
                what = f"{node.name} of AIMET's model stands on {owner}, which the float model has not"
                raise StageError(Fault(what=what, where=node.name))
            found[node.name] = (node, owner)
    return found


def _new_names(owners: Mapping[str, tuple[onnx.NodeProto, str]], outputs: set[str]) -> dict[str, str]:
    """Tensor of AIMET's model -> its new name; what keeps its name is left out."""
    names: dict[str, str] = {}
    for node, owner in owners.values():
        if node.op_type == "QuantizeLinear":
            if node.input[0] != owner:
                names[node.input[0]] = f"{owner}/float"
            names[node.output[0]] = f"{owner}/quantized"
        else:
            names[node.input[0]] = f"{owner}/quantized"
            if owner not in outputs:
                names[node.output[0]] = f"{owner}/dequantized"
        names[node.input[1]] = f"{owner}/scale"
        if len(node.input) > 2:
            names[node.input[2]] = f"{owner}/zero_point"
    return names


def _rename(model: onnx.ModelProto, owners: Mapping[str, tuple[onnx.NodeProto, str]], names: Mapping[str, str]) -> None:
    for node in model.graph.node:
        if node.name in owners:
            node.name = f"{owners[node.name][1]}/{node.op_type}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for entry in model.graph.value_info:
        entry.name = names.get(entry.name, entry.name)
    read = {name for node in model.graph.node for name in node.input} | {entry.name for entry in model.graph.output}
    kept = sorted((tensor for tensor in model.graph.initializer if tensor.name in read), key=lambda tensor: tensor.name)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _part_readers(model: onnx.ModelProto, output: str) -> None:
    """Give nodes that read a quantised output a DequantizeLinear of their own: the output may become its codes."""
    place = next((i for i, node in enumerate(model.graph.node) if output in node.output), None)
    readers = [node for node in model.graph.node if output in node.input]
    if place is None or not readers or model.graph.node[place].op_type != "DequantizeLinear":
        return
    inner = onnx.NodeProto()
    inner.CopyFrom(model.graph.node[place])
    inner.name, inner.output[0] = f"{output}/inner/DequantizeLinear", f"{output}/dequantized"
    for node in readers:
        node.input[:] = [inner.output[0] if name == output else name for name in node.input]
    model.graph.node.insert(place + 1, inner)


def _check_unique(model: onnx.ModelProto) -> None:
    made = [name for node in model.graph.node for name in node.output if name]
    made += [tensor.name for tensor in model.graph.initializer] + [entry.name for entry in model.graph.input]
    if len(made) != len(set(made)):
        twice = sorted(name for name in set(made) if made.count(name) > 1)
        raise StageError(Fault(what=f"AIMET's model names tensors twice: {', '.join(twice[:8])}", where=twice[0]))


def _quantiser(node: onnx.NodeProto, initializers: Mapping[str, TensorProto]) -> Quantiser:
    constant = initializers.get(node.input[0])
    scale = _array(initializers[node.input[1]])
    zero = initializers.get(node.input[2]) if len(node.input) > 2 else None
    kind = zero if zero is not None else constant
    axes = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
    assert kind is not None, node.name  # activations have a zero point: QuantizeLinear's type
    return Quantiser(
        dtype=_DTYPES[kind.data_type],
        scale=tuple(float(value) for value in scale.reshape(-1)),
        zero_point=() if zero is None else tuple(int(value) for value in _array(zero).reshape(-1)),
        axis=axes[0] if axes and scale.ndim else None,
        constant=constant is not None,
    )


def _array(tensor: TensorProto) -> NDArray[Any]:
    return np.asarray(numpy_helper.to_array(tensor))


def _provenance(floating: onnx.ModelProto, quantisers: Mapping[str, Quantiser]) -> Iterable[Provenance]:
    outputs = {entry.name for entry in floating.graph.output}
    constants = {tensor.name for tensor in floating.graph.initializer}
    made = [name for node in floating.graph.node for name in node.output if name]
    for name in (*(entry.name for entry in floating.graph.input if entry.name not in constants), *made):
        new = f"{name}/dequantized" if name in quantisers and name not in outputs else name
        yield Provenance(old=name, new=new, relation="same")
