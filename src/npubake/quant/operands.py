"""quant: the constant operand and bias of a weighted fusion group. Summary and arrays in, arrays out; no onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.graph.summary import FusionGroup, GraphSummary, NodeFact


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelFacts:
    """What ``assign`` needs of a model beside its summary. initializers: constants by name; attributes: the numeric
    attributes of each node by the node's name (``transB``, ``alpha``, ``group``, ...), those at their default left out.
    """

    initializers: Mapping[str, NDArray[Any]]
    attributes: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedOperand:
    """weights: float32, its output channels along ``axis``; bias: float32 or None; names as in the model.

    node: the node that reads the weights; bias_node: the one that reads the bias ('' for none).
    """

    node: str
    initializer: str
    axis: int
    weights: NDArray[np.float32]
    bias_node: str = ""
    bias_name: str = ""
    bias: NDArray[np.float32] | None = None

    @property
    def channels(self) -> int:
        return int(self.weights.shape[self.axis])

    def channel_bias(self) -> NDArray[np.float32] | None:
        """The bias with its channels along the last axis, one element for all repeated; None for none."""
        if self.bias is None:
            return None
        if self.bias.size == 1:
            return np.full(self.channels, self.bias.item(), np.float32)
        return self.bias


def nodes_by_name(summary: GraphSummary) -> dict[str, NodeFact]:
    """Made once for many calls of ``weighted_operand``."""
    return {node.name: node for node in summary.nodes}


def weighted_operand(
    summary: GraphSummary, group: FusionGroup, facts: ModelFacts, nodes: Mapping[str, NodeFact] | None = None
) -> WeightedOperand:
    """The weights of a ``conv`` (channels on axis 0), ``conv_transpose`` (axis 1: one scale serves a channel of every
    group), Gemm (axis 0 with transB, else 1) or MatMul with a constant on the right (last axis).

    nodes: ``nodes_by_name(summary)``, where it is at hand.

    Raises StageError where the group has no constant operand, or a Gemm still has alpha, beta or transA.
    """
    nodes = nodes if nodes is not None else nodes_by_name(summary)
    inside = [nodes[name] for name in group.nodes]
    for node in inside:
        axis = _channel_axis(node, facts)
        if axis is not None:
            name = node.inputs[1]
            bias_node, bias_name = _bias(node, inside, facts)
            return WeightedOperand(
                node=node.name,
                initializer=name,
                axis=axis,
                weights=np.asarray(facts.initializers[name], np.float32),
                bias_node=bias_node,
                bias_name=bias_name,
                bias=np.asarray(facts.initializers[bias_name], np.float32) if bias_name else None,
            )
    what = f"a group of kind {group.kind} without a constant operand cannot be quantised"
    raise StageError(Fault(what=what, where=group.name, hint="optimize should have called it `matmul` or `float`"))


def _channel_axis(node: NodeFact, facts: ModelFacts) -> int | None:
    """Output channels' axis of the node's second input; None where that is no constant of a weighted operator."""
    if len(node.inputs) < 2 or node.inputs[1] not in facts.initializers:
        return None
    if node.op_type in ("Conv", "ConvTranspose"):
        return 0 if node.op_type == "Conv" else 1
    if node.op_type == "MatMul":
        return int(np.ndim(facts.initializers[node.inputs[1]])) - 1
    if node.op_type != "Gemm":
        return None
    attributes = facts.attributes.get(node.name, {})
    odd = [f"{key} = {attributes[key]:g}" for key, usual in _GEMM_USUAL.items() if attributes.get(key, usual) != usual]
    if odd:
        raise StageError(Fault(what=f"Gemm with {', '.join(odd)}", where=node.name, hint="optimize folds these"))
    return 0 if attributes.get("transB", 0) else 1


_GEMM_USUAL: Mapping[str, float] = {"alpha": 1.0, "beta": 1.0, "transA": 0}


def _bias(anchor: NodeFact, inside: list[NodeFact], facts: ModelFacts) -> tuple[str, str]:
    """Node and initialiser of the bias: the anchor's third input, or a constant Add behind it in the group."""
    if len(anchor.inputs) > 2 and anchor.inputs[2] in facts.initializers:
        return anchor.name, anchor.inputs[2]
    for node in inside:
        if node.op_type == "Add" and anchor.outputs[0] in node.inputs:
            for name in node.inputs:
                if name in facts.initializers:
                    return node.name, name
    return "", ""
