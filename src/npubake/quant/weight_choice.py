"""quant: which format the weights of each group take: lane, then ``weights``, then overrides. Names and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary, NodeFact
from npubake.quant.weight_formats import WeightFormat

if TYPE_CHECKING:
    from npubake.quant.request import Request

_DEPTHWISE = "one input channel for each of its groups (depthwise)"
_OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWeights:
    """A group whose weights are not in the format that was asked of it. why: a clause for people."""

    group: str
    asked: str
    held: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormats:
    """by_group: of every weighted group; kept: those that took another one than was asked."""

    by_group: Mapping[str, WeightFormat]
    kept: tuple[KeptWeights, ...]


def weight_formats(summary: GraphSummary, request: Request, matched: Sequence[tuple[str, ...]]) -> WeightFormats:
    """The later choice wins. matched: names of the groups that each layer override matches.

    Where the lane or ``weights`` asks int4, a ConvTranspose and a Conv with one input channel a group (depthwise, or of
    a grey picture) keep int8: they hold few weights and lose most; an override that names them is obeyed. 16 bits have
    no groups.
    """
    asked = request.weight_format
    formats = {group.name: asked for group in summary.groups if group.kind in WEIGHTED_KINDS}
    named: set[str] = set()
    for settings, groups in zip(request.settings, matched, strict=True):
        for name in groups:
            if name in formats:
                formats[name] = settings.applied_to_weights(formats[name])
                named.update([name] if settings.weights is not None else [])
    kept = []
    few = _few_weights(summary)
    for name, entry in formats.items():
        if entry.dtype == "int4" and name in few and name not in named:
            formats[name] = replace(entry, dtype="int8", granularity=_without_groups(entry).granularity)
            kept.append(KeptWeights(group=name, asked="int4", held="int8", why=few[name]))
        elif entry.dtype == "int16" and entry.granularity == "per_group":
            formats[name] = _without_groups(entry)
            why = "16 bits a channel are finer than groups of them"
            kept.append(KeptWeights(group=name, asked="per_group", held="per_channel", why=why))
    return WeightFormats(by_group=formats, kept=tuple(kept))


def _without_groups(entry: WeightFormat) -> WeightFormat:
    return replace(entry, granularity="per_channel") if entry.granularity == "per_group" else entry


def input_channels(summary: GraphSummary, group: FusionGroup) -> int:
    """Input channels that each output channel of a weighted group sums over: what ``group_size`` divides."""
    nodes = {node.name: node for node in summary.nodes}
    weighted = next(nodes[name] for name in group.nodes if nodes[name].op_type in _OPERATORS)
    if weighted.op_type in ("Conv", "ConvTranspose"):
        return _size(summary, weighted.inputs[1], 1 if weighted.op_type == "Conv" else 0)
    left, right = weighted.inputs[:2]
    return _size(summary, left, -1) if left in group.inputs else _size(summary, right, -2)


def _size(summary: GraphSummary, tensor: str, axis: int) -> int:
    """0 where the size of ``tensor`` is not known."""
    fact = summary.tensors.get(tensor)
    return 0 if fact is None else fact.shape[axis]


def _few_weights(summary: GraphSummary) -> dict[str, str]:
    """Groups for which 4 bits save nothing, with the reason."""
    nodes = {node.name: node for node in summary.nodes}
    found = {}
    for group in summary.groups:
        for node in (nodes[name] for name in group.nodes if nodes[name].op_type in _OPERATORS):
            if node.op_type == "ConvTranspose":
                found[group.name] = "a transposed convolution"
            elif _sums_one_channel(summary, node):
                depthwise = _size(summary, node.inputs[0], 1) > 1
                found[group.name] = _DEPTHWISE if depthwise else "a single input channel"
    return found


def _sums_one_channel(summary: GraphSummary, node: NodeFact) -> bool:
    return node.op_type == "Conv" and _size(summary, node.inputs[1], 1) == 1
