"""Qualcomm toolchain: fusion groups -> operations in the forms that the compiler takes. The float model enters.

A Relu or Clip behind a convolution is left out where the grid clips to its bounds itself; a MatMul with a bias becomes
a Gemm (QNN's FullyConnected, whose int32 bias costs no rounding between).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log1p, prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.graph.editing import attribute
from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary
from npubake.quant.operands import ModelFacts, WeightedOperand, nodes_by_name, weighted_operand
from npubake.quant.parameters import QuantizationParameters, WeightParameters
from npubake.quant.ranges import Range, including_zero
from npubake.quant.sharing import SHARING_KINDS
from npubake.quant.weights import encode_weights
from npubake.toolchains.qualcomm.adapting.computing import Computing
from npubake.toolchains.qualcomm.adapting.grids import of_parameters, of_range
from npubake.toolchains.qualcomm.adapting.misfusing import keep_apart
from npubake.toolchains.qualcomm.adapting.operations import BIAS_MOST, EncodedWeights, Form, Operation, Spelling
from npubake.toolchains.qualcomm.adapting.resizing import spelt_nearest
from npubake.toolchains.qualcomm.adapting.wide_weights import is_dilated, refuse_lost_bits, spread
from npubake.toolchains.qualcomm.facts import DEFAULT_OPTIMIZATION

_ONE_TABLE = "at 8 bits the HTP computes x * Sigmoid(x) by one table"


@dataclass(slots=True, kw_only=True)
class Speller:
    """Spells one model. facts: its constants and attributes; computing: of every group, what it computes in;
    optimization: that the compiler will be asked for.
    """

    model: onnx.ModelProto
    summary: GraphSummary
    facts: ModelFacts
    parameters: QuantizationParameters
    computing: Mapping[str, Computing]
    optimization: int = DEFAULT_OPTIMIZATION

    def spell(self) -> Spelling:
        """Raises StageError with every layer whose weights have no form that the compiler takes."""
        made, faults = Spelling(), list[Fault]()
        nodes = {node.name: node for node in self.model.graph.node}
        for group in self.summary.groups:
            members = [nodes[name] for name in group.nodes]
            how = self.computing[group.name]
            if not how.integer:
                made.operations += [Operation(node=node, integer=False, why=how.why) for node in members]
            elif group.kind in WEIGHTED_KINDS:
                try:
                    self._spell_weighted(made, group, members)
                except StageError as error:
                    faults += error.faults
            else:
                self._spell_plain(made, group, members)
        if faults:
            raise StageError(*faults)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.summary.tensors.items()}
        wide = {name for name, entry in self.parameters.tensors.items() if entry.dtype == "int16"}
        keep_apart(made, shapes, wide, self.optimization)
        return made

    def _spell_plain(self, made: Spelling, group: FusionGroup, members: Sequence[onnx.NodeProto]) -> None:
        kept = self._without_clamp(made, members) if group.kind == "add" else list(members)
        made.ranges |= self._gate_ranges(group, members)
        bits = self.computing[group.name].bits
        if group.function == "silu" and not self._wide(members[-1], group.inputs[0]):
            made.gates.add(members[0].output[0])
            made.forms.append(Form(node=members[0].name, what="gate not rounded in `model`", why=_ONE_TABLE))
        for node in kept:
            parts = self._nearest(made, node) if node.op_type == "Resize" else self._unclipped(made, node)
            made.operations += [Operation(node=each, integer=True, bits=bits) for each in parts]

    def _spell_weighted(self, made: Spelling, group: FusionGroup, members: Sequence[onnx.NodeProto]) -> None:
        operand = weighted_operand(self.summary, group, self.facts, nodes_by_name(self.summary))
        weights = encoded(operand, self.parameters.weights[group.name])
        kept = self._without_clamp(made, members)
        bits = self.computing[group.name].bits
        anchor, others = kept[0], kept[1:]
        refuse_lost_bits(anchor, weights)
        if operand.bias_node and operand.bias_node != anchor.name:
            bias = next(node for node in others if node.name == operand.bias_node)
            others.remove(bias)
            made.operations += self._fully_connected(made, anchor, bias.output[0], weights, group)
        elif anchor.op_type == "Gemm" and weights.axis == 1:
            anchor = _copied(anchor)
            _set_attribute(anchor, "transB", 1)
            made.operations.append(Operation(node=anchor, integer=True, bits=bits, weights=_transposed(weights)))
        elif is_dilated(anchor, weights):
            anchor = _copied(anchor)
            why = "dilated, by weights of 16 bits, the HTP loses the lower bits of every product"
            made.forms.append(Form(node=anchor.name, what="dilation as zeros between weights", why=why))
            weights = spread(anchor, weights)
            made.operations.append(Operation(node=anchor, integer=True, bits=bits, weights=weights))
        else:
            anchor, weights = self._ungrouped(made, anchor, weights)
            made.operations.append(Operation(node=anchor, integer=True, bits=bits, weights=weights))
        for node in others:
            made.operations += [Operation(node=each, integer=True, bits=bits) for each in self._unclipped(made, node)]

    def _ungrouped(
        self, made: Spelling, anchor: onnx.NodeProto, weights: EncodedWeights
    ) -> tuple[onnx.NodeProto, EncodedWeights]:
        """A ConvTranspose of groups with several channels each and a bias, as one group with zeros between."""
        groups = int(self.facts.attributes[anchor.name].get("group", 1))
        if anchor.op_type != "ConvTranspose" or groups == 1 or weights.per_tensor or weights.bias is None:
            return anchor, weights
        inputs, outputs, *window = weights.codes.shape
        dense = np.full((inputs, groups * outputs, *window), weights.zero_point, weights.codes.dtype)
        for index in range(groups):
            rows = slice(index * inputs // groups, (index + 1) * inputs // groups)
            dense[rows, index * outputs : (index + 1) * outputs] = weights.codes[rows]
        why = "a bias of more channels than a group's weights is refused"
        made.forms.append(Form(node=anchor.name, what="groups as one, with zeros", why=why))
        alone = _copied(anchor)
        _set_attribute(alone, "group", 1)
        return alone, replace(weights, codes=dense, scales=np.tile(weights.scales, groups))

    def _fully_connected(
        self, made: Spelling, product: onnx.NodeProto, result: str, weights: EncodedWeights, group: FusionGroup
    ) -> list[Operation]:
        """MatMul and Add as one Gemm, between reshapes to rows where there are more than two axes."""
        bits, name = self.computing[group.name].bits, product.name
        source, shape = product.input[0], self.summary.tensors[product.input[0]].shape
        made.forms.append(Form(node=name, what="MatMul and Add as Gemm", why="its bias is not rounded in between"))
        encoded_rows = _transposed(weights)
        names = [weights.initializer, weights.bias_name]
        if len(shape) == 2:
            gemm = helper.make_node("Gemm", [source, *names], [result], name=name, transB=1)
            return [Operation(node=gemm, integer=True, bits=bits, weights=encoded_rows)]
        rows, rough = f"{name}/rows", f"{name}/product"
        made.like |= {rows: source, rough: result}
        made.constants[f"{name}/rows_shape"] = np.array([prod(shape[:-1]), shape[-1]], np.int64)
        made.constants[f"{name}/shape"] = np.array([*shape[:-1], len(weights.scales)], np.int64)
        nodes = [
            helper.make_node("Reshape", [source, f"{name}/rows_shape"], [rows], name=f"{name}/ToRows"),
            helper.make_node("Gemm", [rows, *names], [rough], name=name, transB=1),
            helper.make_node("Reshape", [rough, f"{name}/shape"], [result], name=f"{name}/FromRows"),
        ]
        held = {name: encoded_rows}
        return [Operation(node=node, integer=True, bits=bits, weights=held.get(node.name)) for node in nodes]

    def _without_clamp(self, made: Spelling, members: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes of a group whose last one may be a Relu or Clip; without it where its output's grid clips so."""
        clamp, kept = members[-1], list(members)
        if len(members) < 2 or clamp.op_type not in ("Relu", "Clip"):
            return kept
        name, (low, high) = clamp.output[0], self._bounds(clamp)
        grid = of_parameters(self.parameters.tensors[name])
        if grid.bits == 16 and not self._copied(name):
            span = Range(low=max(grid.span.low, min(low, 0.0)), high=min(grid.span.high, max(high, 0.0)))
            finer = of_range(span, 16, "parameters")
            if self._largest_bias(name, finer.scale) <= BIAS_MOST:
                grid = made.grids[name] = finer
        if not grid.implies(low, high):
            made.like[clamp.input[0]] = clamp.output[0]
            return kept
        made.forms.append(Form(node=clamp.name, what=f"{clamp.op_type} left out", why="its output's grid clips so"))
        made.clipping.add(name)
        last = _copied(members[-2])
        last.output[0] = clamp.output[0]
        return [*members[:-2], last]

    def _largest_bias(self, name: str, scale: float) -> float:
        """Of the layers that read a tensor: the largest |code| of their biases, were its scale ``scale``."""
        readers = [group for group in self.summary.groups if name in group.inputs and group.kind in WEIGHTED_KINDS]
        nodes, largest = nodes_by_name(self.summary), 0.0
        for group in readers:
            if self.computing[group.name].integer:
                weights = encoded(
                    weighted_operand(self.summary, group, self.facts, nodes), self.parameters.weights[group.name]
                )
                largest = max(largest, weights.largest_bias(scale))
        return largest

    def _copied(self, name: str) -> bool:
        """Whether a movement reads the tensor, so that others lie on its grid."""
        return any(name in group.inputs for group in self.summary.groups if group.kind in SHARING_KINDS)

    def _wide(self, node: onnx.NodeProto, *more: str) -> bool:
        """Whether a node reads or makes 16 bits."""
        held = (self.parameters.tensors.get(name) for name in (*node.input, *node.output, *more))
        return any(entry is not None and entry.dtype == "int16" for entry in held)

    def _unclipped(self, made: Spelling, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A Clip of 16 bits as Relu or Max, and Min: behind another operator the compiler leaves it out unasked."""
        if node.op_type != "Clip" or not self._wide(node):
            return [node]
        (low, high), seen, parts = self._bounds(node), node.input[0], list[onnx.NodeProto]()
        made.forms.append(Form(node=node.name, what="Clip as Relu, Max, Min", why="at 16 bits the HTP loses a Clip"))
        for op_type, bound in (("Max", low), ("Min", high)):
            if np.isfinite(bound):
                name = f"{node.name}/{op_type}"
                operands = [seen, f"{name}/bound"]
                made.constants[operands[1]] = np.array(bound, np.float32)
                if op_type == "Max" and bound == 0.0:
                    op_type, operands = "Relu", [seen]
                parts.append(helper.make_node(op_type, operands, [name], name=name))
                seen, made.like[name] = name, node.output[0]
        if not parts:
            return [node]
        made.like.pop(seen)
        parts[-1].output[0], parts[-1].name = node.output[0], node.name
        return parts

    def _nearest(self, made: Spelling, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A nearest Resize as the HTP computes it. StageError for a cubic one that it computes wrongly."""
        how, corners = attribute(node, "mode", "nearest"), attribute(node, "coordinate_transformation_mode", "")
        if how == "cubic" and corners == "align_corners":
            what, hint = "the HTP computes a cubic Resize of align_corners wrongly", "export it linear, or half_pixel"
            raise StageError(Fault(what=what, where=node.name, hint=hint))
        if how != "nearest":
            return [node]
        shapes = tuple(self.summary.tensors[name].shape for name in (node.input[0], node.output[0]))
        stated = self.facts.initializers.get(node.input[2]) if len(node.input) > 2 else None
        ratios = [count / size for size, count in zip(*shapes, strict=True)]
        whole = stated is not None and stated.size == len(ratios)
        scales = stated.reshape(-1).tolist() if whole and stated is not None else ratios
        nodes, constants = spelt_nearest(node, (shapes[0], shapes[1]), scales)
        made.constants |= constants
        made.like |= {each.output[0]: node.output[0] for each in nodes[:-1]}
        if len(nodes) > 1 or nodes[0].attribute != node.attribute:
            why = "other modes are computed wrongly without a word"
            made.forms.append(Form(node=node.name, what="nearest Resize as asymmetric, floor, or Gather", why=why))
        return nodes

    def _bounds(self, clamp: onnx.NodeProto) -> tuple[float, float]:
        bounds = [-np.inf if clamp.op_type == "Clip" else 0.0, np.inf]
        for slot, name in enumerate(clamp.input[1:3]):
            if name:
                bounds[slot] = float(self.facts.initializers[name].reshape(-1)[0])
        return bounds[0], bounds[1]

    def _gate_ranges(self, group: FusionGroup, members: Sequence[onnx.NodeProto]) -> dict[str, Range]:
        """Ranges of what lies inside x * gate(x), from the range of x: monotone functions of its ends."""
        if group.function not in ("mish", "quick_gelu") or len(members) < 3:
            return {}
        span = of_parameters(self.parameters.tensors[group.inputs[0]]).span
        first = members[0]
        if first.op_type == "Softplus":
            return {first.output[0]: including_zero(_softplus(span.low), _softplus(span.high))}
        factor = next(self.facts.initializers[name] for name in first.input if name in self.facts.initializers)
        ends = [float(factor.reshape(-1)[0]) * end for end in (span.low, span.high)]
        return {first.output[0]: including_zero(min(ends), max(ends))}


def encoded(operand: WeightedOperand, entry: WeightParameters) -> EncodedWeights:
    """The operand by its parameters. Raises StageError for formats that the compiler does not take."""
    zero_points, why = set(entry.zero_points or (0,)), ""
    if entry.group_size:
        why = f"weights with a scale for each {entry.group_size} input channels"
    elif len(zero_points) > 1 or (entry.zero_points and len(set(entry.scales)) > 1):
        why = "weights with a zero point a channel"
    elif entry.dtype == "int4" and entry.zero_points:
        why = "weights of 4 bits with a zero point"
    if why:
        hint = "set weights: {granularity: per_channel, symmetric: true} for this layer"
        raise StageError(Fault(what=f"the HTP compiler does not take {why}", where=operand.node, hint=hint))
    bias = operand.channel_bias()
    return EncodedWeights(
        initializer=operand.initializer,
        dtype=entry.dtype,
        axis=operand.axis,
        codes=encode_weights(operand.weights, entry),
        scales=np.array(entry.scales, np.float64),
        zero_point=zero_points.pop(),
        bias_name=operand.bias_name,
        bias=None if bias is None else bias.reshape(-1),
    )


def _transposed(weights: EncodedWeights) -> EncodedWeights:
    return replace(weights, axis=0, codes=np.ascontiguousarray(weights.codes.T)) if weights.axis == 1 else weights


def _softplus(value: float) -> float:
    return max(value, 0.0) + log1p(exp(-abs(value)))


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    kept = [entry for entry in node.attribute if entry.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
