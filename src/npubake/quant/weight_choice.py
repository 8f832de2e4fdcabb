"""quant: which format the weights of each group take: lane, then ``weights``, then overrides. Names and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npubake.graph.summary import WEIGHTED_KINDS, GraphSummary, NodeFact
from npubake.quant.operands import ModelFacts
from npubake.quant.request import Request
from npubake.quant.weight_formats import WeightFormat

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


def weight_formats(
    summary: GraphSummary, facts: ModelFacts, request: Request, matched: Sequence[tuple[str, ...]]
) -> WeightFormats:
    """The later choice wins. matched: names of the groups that each layer override matches.

    Where the lane or ``weights`` asks int4, a ConvTranspose and a Conv with one input channel a group (depthwise) keep
    int8: they hold few weights and lose most; an override that names them is obeyed. 16 bits have no groups.
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
    few = _few_weights(summary, facts)
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


def _few_weights(summary: GraphSummary, facts: ModelFacts) -> dict[str, str]:
    """Groups for which 4 bits save nothing, with the reason."""
    nodes = {node.name: node for node in summary.nodes}
    found = {}
    for group in summary.groups:
        for node in (nodes[name] for name in group.nodes if nodes[name].op_type in _OPERATORS):
            if node.op_type == "ConvTranspose":
                found[group.name] = "a transposed convolution"
            elif node.op_type == "Conv" and _inputs(node, facts) == 1:
                found[group.name] = "one input channel for each of its groups (depthwise)"
    return found


def _inputs(node: NodeFact, facts: ModelFacts) -> int:
    """Input channels of one group of a Conv; 0 where its weights are computed."""
    weights = facts.initializers.get(node.inputs[1])
    return 0 if weights is None else int(weights.shape[1])
