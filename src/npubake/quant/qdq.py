"""quant: the calibrated model. An optimised ``ModelProto`` and parameters enter, a fake-quantised one (QDQ) leaves.

Every integer tensor ``t`` gets ``t/quantized`` (QuantizeLinear) and ``t/dequantized`` (DequantizeLinear); weights and
biases become integer initialisers with a DequantizeLinear each; what a float16 group makes passes a Cast to float16 and
back (``t/float16``, ``t/rounded``). Inner tensors (``QuantizationParameters.inner``) have no quantiser. Nodes keep
their names, and so do the graph's inputs and outputs: where an output is fake-quantised, its maker writes ``t/float``
and an Identity gives the result its name. Operator set 21 is the first
whose QuantizeLinear knows int16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import Fault, StageError
from npubake.graph.inference import infer_shapes
from npubake.graph.int4 import int4_tensor
from npubake.graph.naming import all_names, fresh_name
from npubake.graph.opset import IR_VERSION, OPSET, opset_of
from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary, Provenance
from npubake.quant.lanes import is_integer
from npubake.quant.operands import ModelFacts, WeightedOperand, nodes_by_name, weighted_operand
from npubake.quant.parameters import QuantizationParameters, WeightParameters, WeightType
from npubake.quant.weight_formats import contraction_axis
from npubake.quant.weight_scales import bias_scales, integer_bias
from npubake.quant.weights import block_values, encode_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """provenance: optimised tensor -> what its readers see in ``model``; equal up to quantisation and clipping."""

    model: onnx.ModelProto
    provenance: tuple[Provenance, ...]


def calibrated_model(
    model: onnx.ModelProto, summary: GraphSummary, facts: ModelFacts, parameters: QuantizationParameters
) -> CalibratedModel:
    """Fake-quantise ``model`` (untouched). facts: its constants and attributes, as ``assign`` got them.

    Raises StageError where the model's operator set is older than 21, or an emitted type is not the one decided.
    """
    _check_opset(model)
    writer = _Writer(model, summary, parameters)
    for name in summary.inputs:
        writer.add_views(name, None)
    owner = {node: group for group in summary.groups for node in group.nodes}
    for group in summary.groups:
        if group.kind in WEIGHTED_KINDS and is_integer(parameters.groups[group.name].precision):
            writer.add_weights(group, facts)
    for node in model.graph.node:
        group = owner[node.name]
        writer.add_node(node, group)
        for name in node.output:
            if name in group.outputs:
                writer.add_views(name, group)
    made = writer.finish(model)
    _check_types(made, (writer.codes, writer.weights), parameters)
    return CalibratedModel(model=made, provenance=writer.provenance())


class _Writer:
    """The new graph while it is written, in the order of the old one."""

    def __init__(self, model: onnx.ModelProto, summary: GraphSummary, parameters: QuantizationParameters) -> None:
        self.summary = summary
        self.facts = nodes_by_name(summary)
        self.parameters = parameters
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.names = all_names(model)
        self.raw: dict[str, str] = {}  # tensor -> what its maker writes, where that is not the tensor's own name
        self.integer_view: dict[str, str] = {}  # tensor -> what integer groups read
        self.float_view: dict[str, str] = {}  # tensor -> what float groups and the graph's outputs read
        self.codes: dict[str, str] = {}  # tensor -> its integer form
        self.weights: dict[str, str] = {}  # weighted group -> the initialiser of its codes
        self.operands: dict[tuple[str, str], str] = {}  # (node, constant) -> its dequantised form

    def add_node(self, node: onnx.NodeProto, group: FusionGroup) -> None:
        """Copy ``node`` with inputs as ``group`` sees them."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        integer = is_integer(self.parameters.groups[group.name].precision)
        for slot, name in enumerate(node.input):
            copy.input[slot] = self._read(node.name, name, group, integer)
        for slot, name in enumerate(node.output):
            if name in self.summary.outputs and self._changed(name, group):
                self.raw[name] = copy.output[slot] = self._fresh(f"{name}/float")
        self.nodes.append(copy)

    def add_views(self, name: str, maker: FusionGroup | None) -> None:
        """What readers of ``name`` see: rounded to float16, or through the integers, or both."""
        precision = self.parameters.groups[maker.name].precision if maker else "float32"
        visible = self.raw.get(name, name)
        if precision == "float16" and self.summary.tensors[name].dtype == "float32":
            visible = self._round_to_float16(name, visible)
        self.float_view[name] = visible
        if name in self.parameters.tensors and name not in self.parameters.inner:
            self.integer_view[name] = self._fake_quantise(name, visible)
            if maker and is_integer(precision) and not self.parameters.groups[maker.name].accumulator_output:
                self.float_view[name] = self.integer_view[name]
        if name in self.raw:
            self._node("Identity", [self.float_view[name]], [name], f"{name}/Identity")
            self.float_view[name] = name

    def add_weights(self, group: FusionGroup, facts: ModelFacts) -> None:
        """Integer initialisers and their DequantizeLinear for the group's weights and bias."""
        operand = weighted_operand(self.summary, group, facts, self.facts)
        entry = self.parameters.weights[group.name]
        input_scale = self.parameters.tensors[group.inputs[0]].scale
        scales = np.array(entry.scales)
        self.operands[operand.node, operand.initializer] = self._dequantised_weights(group, operand, entry)
        bias = integer_bias(operand, scales, input_scale)
        if bias is not None:
            steps = bias_scales(bias.shape[-1], scales, input_scale)
            self.operands[operand.bias_node, operand.bias_name] = self._dequantised(
                operand.bias_name, bias, steps, bias.ndim - 1
            )

    def finish(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The new model: shapes inferred, constants that nobody reads left out."""
        made = onnx.ModelProto()
        made.CopyFrom(model)
        del made.graph.node[:]
        made.graph.node.extend(self.nodes)
        read = {name for node in self.nodes for name in node.input} | set(self.summary.outputs)
        kept = [tensor for tensor in (*made.graph.initializer, *self.constants) if tensor.name in read]
        made.ir_version = max(made.ir_version, IR_VERSION)
        del made.graph.initializer[:]
        made.graph.initializer.extend(kept)
        return infer_shapes(made)

    def provenance(self) -> tuple[Provenance, ...]:
        """Every tensor of the optimised graph: as integer groups see it where they do, else as float readers see it."""
        made = [name for node in self.summary.nodes for name in node.outputs if name]
        names = (*self.summary.inputs, *made)
        return tuple(Provenance(old=name, new=self._seen(name), relation="same") for name in names)

    def _seen(self, name: str) -> str:
        return name if name in self.raw else self.integer_view.get(name, self.float_view.get(name, name))

    def _changed(self, name: str, maker: FusionGroup) -> bool:
        """True where a graph output is not what its maker computes in float32."""
        entry = self.parameters.groups[maker.name]
        if entry.precision == "float16":
            return self.summary.tensors[name].dtype == "float32"
        return is_integer(entry.precision) and not entry.accumulator_output

    def _read(self, node: str, name: str, group: FusionGroup, integer: bool) -> str:
        if (node, name) in self.operands:
            return self.operands[node, name]
        if name in group.outputs or name not in self.float_view:
            return self.raw.get(name, name)
        return self.integer_view.get(name, self.float_view[name]) if integer else self.float_view[name]

    def _fake_quantise(self, name: str, source: str) -> str:
        entry = self.parameters.tensors[name]
        scale = self._constant(f"{name}/scale", np.array(entry.scale, np.float32))
        zero = self._constant(f"{name}/zero_point", np.array(entry.zero_point, entry.dtype))
        codes, result = self._fresh(f"{name}/quantized"), self._fresh(f"{name}/dequantized")
        self.codes[name] = codes
        self._node("QuantizeLinear", [source, scale, zero], [codes], f"{name}/QuantizeLinear")
        self._node("DequantizeLinear", [codes, scale, zero], [result], f"{name}/DequantizeLinear")
        return result

    def _round_to_float16(self, name: str, source: str) -> str:
        half, result = self._fresh(f"{name}/float16"), self._fresh(f"{name}/rounded")
        self._node("Cast", [source], [half], f"{name}/ToFloat16", to=TensorProto.FLOAT16)
        self._node("Cast", [half], [result], f"{name}/FromFloat16", to=TensorProto.FLOAT)
        return result

    def _dequantised_weights(self, group: FusionGroup, operand: WeightedOperand, entry: WeightParameters) -> str:
        """Weights by their codes: a scale a channel, or (blocked) a scale for each block of input channels."""
        name, shape = operand.initializer, operand.weights.shape
        codes = encode_weights(operand.weights, entry)
        steps, zeros = np.array(entry.scales), np.array(entry.zero_points)
        attributes = {"axis": entry.axis}
        if entry.group_size:
            steps = np.repeat(steps, len(entry.multipliers) // len(steps)) * entry.multipliers
            steps = block_values(steps, entry, shape)
            zeros = block_values(zeros, entry, shape) if zeros.size else zeros
            attributes = {"axis": contraction_axis(entry.axis), "block_size": entry.group_size}
        inputs = [self._codes(f"{name}/quantized", codes, entry.dtype), self._scale(name, steps)]
        self.weights[group.name] = inputs[0]
        if zeros.size:
            inputs.append(self._codes(f"{name}/zero_point", zeros, entry.dtype))
        result = self._fresh(f"{name}/dequantized")
        self._node("DequantizeLinear", inputs, [result], f"{name}/DequantizeLinear", **attributes)
        return result

    def _dequantised(self, name: str, codes: NDArray[np.int32], scales: NDArray[np.float64], axis: int) -> str:
        stored, scale = self._constant(f"{name}/quantized", codes), self._scale(name, scales)
        result = self._fresh(f"{name}/dequantized")
        self._node("DequantizeLinear", [stored, scale], [result], f"{name}/DequantizeLinear", axis=axis)
        return result

    def _scale(self, name: str, scales: NDArray[np.float64]) -> str:
        return self._constant(f"{name}/scale", scales.astype(np.float32))

    def _codes(self, wish: str, codes: NDArray[Any], dtype: WeightType) -> str:
        if dtype != "int4":
            return self._constant(wish, codes.astype(dtype))
        name = self._fresh(wish)
        self.constants.append(int4_tensor(codes, name))
        return name

    def _node(self, op_type: str, inputs: list[str], outputs: list[str], wish: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=self._fresh(wish), **attributes))

    def _constant(self, wish: str, value: NDArray[Any]) -> str:
        name = self._fresh(wish)
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def _fresh(self, wish: str) -> str:
        return fresh_name(wish, self.names)


def _check_opset(model: onnx.ModelProto) -> None:
    version = opset_of(model)
    if version is None or version < OPSET:
        what = f"the model is of operator set {version}; int16 QuantizeLinear needs {OPSET}"
        raise StageError(Fault(what=what, hint="import brings a model to that set"))


def _check_types(
    model: onnx.ModelProto, emitted: tuple[dict[str, str], dict[str, str]], parameters: QuantizationParameters
) -> None:
    """Every decided tensor, activation or weight, is there as an integer in the type that was decided, by the model's
    own types. emitted: the integers of tensors, and of the weights of groups, by name.
    """
    codes, weights = emitted
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    types.update({tensor.name: tensor.data_type for tensor in model.graph.initializer})
    decided: list[tuple[str, str, str]] = [
        (name, codes.get(name, ""), entry.dtype)
        for name, entry in parameters.tensors.items()
        if name not in parameters.inner
    ]
    decided += [(entry.initializer, weights.get(name, ""), entry.dtype) for name, entry in parameters.weights.items()]
    faults = [
        Fault(what=f"decided as {dtype}, emitted as ONNX type {types.get(made, 0)}", where=name)
        for name, made, dtype in decided
        if types.get(made) != TensorProto.DataType.Value(dtype.upper())
    ]
    if faults:
        raise StageError(*faults)
