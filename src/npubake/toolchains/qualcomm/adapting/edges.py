"""Qualcomm toolchain: the edges that the binary gets: integers in place of float32, and what the board feeds.

``io: quantized``: an input's codes are the graph's input, read by its DequantizeLinear; an output's codes are the
graph's output. The names stay those of the float model. What has no grid stays float32 (or the integer that it was).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.inference import infer_shapes, static_shape
from npubake.graph.naming import all_names, fresh_name
from npubake.graph.ordering import needed_nodes
from npubake.toolchains.qualcomm.adapting.grids import Grid
from npubake.toolchains.qualcomm.adapting.pixels import feed_pixels
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest


@dataclass(slots=True, kw_only=True)
class Edges:
    """The model with its edges, and what the record says of them."""

    model: onnx.ModelProto
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    runtime: dict[str, dict[str, Any]] = field(default_factory=dict)


def compilable_model(
    model: onnx.ModelProto, codes: Mapping[str, str], grids: Mapping[str, Grid], request: AdaptRequest
) -> Edges:
    """``model`` (untouched) with the edges of ``request``. codes: quantised tensor -> its integers."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    edges = Edges(model=made)
    specs = {spec.name: spec for spec in request.runtime}
    integer = request.io == "quantized"
    for value in list(made.graph.input):
        name, grid = value.name, grids.get(value.name)
        if name in specs:
            fed = feed_pixels(made, specs[name], codes.get(name), grid)
            edges.inputs |= fed.inputs
            edges.runtime[name] = fed.facts
        else:
            held = grid if integer and name in codes else None
            if held is not None:
                _take_codes(made, value, codes[name], held)
            edges.inputs[name] = {"model_input": name, **_facts(value, held), "kind": "tensor"}
    for value in made.graph.output:
        held = grids.get(value.name) if integer and value.name in codes else None
        if held is not None:
            _give_codes(made, value, codes[value.name], held)
        edges.outputs[value.name] = {"model_output": value.name, **_facts(value, held)}
    edges.model = infer_shapes(_pruned(made))
    return edges


def _take_codes(model: onnx.ModelProto, value: onnx.ValueInfoProto, codes: str, grid: Grid) -> None:
    """Let the input be the codes themselves: its QuantizeLinear goes."""
    _remove_maker(model, codes)
    _rename(model, codes, value.name)
    value.type.tensor_type.elem_type = TensorProto.DataType.Value(grid.dtype.upper())


def _give_codes(model: onnx.ModelProto, value: onnx.ValueInfoProto, codes: str, grid: Grid) -> None:
    """Let the output be the codes themselves: its own DequantizeLinear goes."""
    _remove_maker(model, value.name)
    maker = next((node for node in model.graph.node if codes in node.output), None)
    if maker is None or any(entry.name == codes for entry in model.graph.output):
        copy = helper.make_node("Identity", [codes], [value.name], name=f"{value.name}/Identity")
        model.graph.node.append(copy)  # an input that is an output too
    else:
        _rename(model, codes, value.name)
        if _converts(model, maker):
            _pass_through_a_row(model, value, maker)
    value.type.tensor_type.elem_type = TensorProto.DataType.Value(grid.dtype.upper())


def _converts(model: onnx.ModelProto, writer: onnx.NodeProto) -> bool:
    """Whether a QuantizeLinear converts other codes: its layer computes in 16 bits, and leaves in 8."""
    makers = (node for node in model.graph.node if writer.input[0] in node.output)
    return writer.op_type == "QuantizeLinear" and any(node.op_type == "DequantizeLinear" for node in makers)


def _pass_through_a_row(model: onnx.ModelProto, value: onnx.ValueInfoProto, writer: onnx.NodeProto) -> None:
    """Reshape the codes to one row and back. Without it onnxruntime moves the transposition behind a layer of planes
    into the conversion, whose two types no transposition of the HTP has (3110).
    """
    names, shape = all_names(model), static_shape(value) or ()
    source = fresh_name(f"{value.name}/converted", names)
    writer.output[0] = source
    row = fresh_name(f"{value.name}/row", names)
    for number, (form, result) in enumerate((((-1,), row), (shape, value.name))):
        seen, moved, sizes = (
            fresh_name(f"{value.name}/{wish}", names) for wish in (f"seen{number}", f"moved{number}", f"sizes{number}")
        )
        model.graph.initializer.append(numpy_helper.from_array(np.array(form, np.int64), sizes))
        steps = list(writer.input[1:])
        for op_type, inputs, output in (
            ("DequantizeLinear", [source, *steps], seen),
            ("Reshape", [seen, sizes], moved),
            ("QuantizeLinear", [moved, *steps], result),
        ):
            name = fresh_name(f"{output}/{op_type}", names)
            model.graph.node.append(helper.make_node(op_type, inputs, [output], name=name))
        source = row


def _remove_maker(model: onnx.ModelProto, tensor: str) -> None:
    kept = [node for node in model.graph.node if tensor not in node.output]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for node in model.graph.node:
        for names in (node.input, node.output):
            for slot, name in enumerate(names):
                if name == old:
                    names[slot] = new


def _pruned(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without nodes and initialisers that nothing reads any more."""
    nodes = needed_nodes(model.graph.node, [value.name for value in model.graph.output])
    kept_nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept_nodes)
    read = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


def _facts(value: onnx.ValueInfoProto, grid: Grid | None) -> dict[str, Any]:
    kind = value.type.tensor_type.elem_type
    return {
        "dtype": helper.tensor_dtype_to_np_dtype(kind).name,
        "shape": list(static_shape(value) or ()),
        "scale": None if grid is None else grid.scale,
        "zero_point": None if grid is None else grid.zero_point,
    }
