"""Room ``graph``: which nodes beside the outputs a ``remove`` takes, found on graph.json. No onnx.

From an output inwards: a node of a wanted type goes, and the next one is looked at. A Softmax is also found in front of
Reshapes and Transposes that stay: they work on its input then. Whatever stands further in stays with them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from npubake.graph.summary import GraphSummary, NodeFact

MOVES = ("Reshape", "Transpose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """What lowering will put at the edges. held: tensors held in integers, wide: those of 16 bits; integer, half: names
    of groups that compute in integers, in float16; unrounded: groups whose accumulator leaves, through a Dequantize
    where int32_tail.
    """

    held: frozenset[str]
    wide: frozenset[str]
    integer: frozenset[str]
    half: frozenset[str]
    unrounded: frozenset[str]
    int32_tail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChain:
    """taken: nodes that go, from the output inwards; kept: movements that stay between the output and the Softmax that
    was taken last, from the output inwards; source: the tensor that becomes the output (behind ``kept``).
    """

    output: str
    taken: tuple[NodeFact, ...]
    kept: tuple[NodeFact, ...]
    source: str


def output_chain(summary: GraphSummary, output: str, wanted: Collection[str]) -> OutputChain:
    """What goes in front of ``output``. A node that reads a graph input, a constant or another output stays: nothing
    would be left to make the output.
    """
    makers = {name: node for node in summary.nodes for name in node.outputs}
    taken: list[NodeFact] = []
    node = _removable(summary, makers, output)
    source = output
    while node is not None and node.op_type in wanted:
        taken.append(node)
        source = node.inputs[0]
        node = _removable(summary, makers, source)
    kept: list[NodeFact] = []
    while node is not None and node.op_type in MOVES:
        kept.append(node)
        node = _removable(summary, makers, node.inputs[0])
    if kept and "Softmax" in wanted and node is not None and node.op_type == "Softmax":
        return OutputChain(output=output, taken=(*taken, node), kept=tuple(kept), source=node.inputs[0])
    return OutputChain(output=output, taken=tuple(taken), kept=(), source=source)


def _removable(summary: GraphSummary, makers: dict[str, NodeFact], tensor: str) -> NodeFact | None:
    node = makers.get(tensor)
    if node is None or not node.inputs or node.inputs[0] not in makers or node.inputs[0] in summary.outputs:
        return None
    return node


def input_chain(summary: GraphSummary, name: str, wanted: Collection[str]) -> tuple[NodeFact, ...]:
    """Nodes of wanted types behind the input ``name``, inwards, as far as each is the only reader of what it reads."""
    taken: list[NodeFact] = []
    while True:
        readers = [node for node in summary.nodes if name in node.inputs]
        if len(readers) != 1 or readers[0].inputs[0] != name or readers[0].outputs[0] in summary.outputs:
            return tuple(taken)
        if readers[0].op_type not in wanted:
            return tuple(taken)
        taken.append(readers[0])
        name = readers[0].outputs[0]


def stands_quantize(summary: GraphSummary, name: str, taken: tuple[NodeFact, ...], facts: Quantisation) -> bool:
    """Whether lowering puts a Quantize behind the input ``name``, once ``taken`` have gone."""
    groups = _groups(summary)
    if taken and groups[taken[-1].name] in facts.half:
        return False  # the rounding to float16 stands between
    last = taken[-1].outputs[0] if taken else name
    readers = [group.name for group in summary.groups if last in group.inputs]
    return last in facts.held and bool(readers) and facts.integer.issuperset(readers)


def stands_dequantize(summary: GraphSummary, chain: OutputChain, facts: Quantisation) -> bool:
    """Whether lowering puts a Dequantize in front of an output, once ``chain.taken`` have gone."""
    groups, makers = _groups(summary), summary.producer_group()
    maker = makers.get(chain.source)
    if chain.taken:
        near = {groups[chain.taken[-1].name], maker.name if maker else ""}
        return chain.source in facts.held and bool(near & facts.integer)
    if maker is None or maker.name not in facts.integer:
        return False
    if maker.name not in facts.unrounded:
        return True
    clipped = any(node.op_type == "Clip" for node in summary.nodes if node.name in maker.nodes)
    return facts.int32_tail and not clipped


def _groups(summary: GraphSummary) -> dict[str, str]:
    return {node: group.name for group in summary.groups for node in group.nodes}
