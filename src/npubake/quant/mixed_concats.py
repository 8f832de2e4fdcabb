"""quant: concats that join large and small values (boxes beside scores), and how they are kept apart. No onnx.

One scale for all inputs of a concat leaves an input 16 times smaller than another 4 of its 8 bits, and one 600 times
smaller nothing at all. Where no integer kernel computes with the result, the concat joins floats and every input keeps
a scale of its own; else the whole class holds 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.lanes import Decision, Lane, is_integer
from npubake.quant.parameters import Precision
from npubake.quant.ranges import Range
from npubake.quant.sharing import SHARING_KINDS

MIXED_RATIO = 16.0
KEPT_APART = "inputs of different size"  # how the decisions made here begin


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedConcat:
    """A concat whose inputs differ so much that the small ones drown in one scale of 8 bits.

    absmax: by input; ratio: largest to least; precision: what the concat computes in for it.
    """

    group: str
    ratio: float
    absmax: Mapping[str, float]
    precision: Precision = "int8"


def mixed_concats(summary: GraphSummary, ranges: Mapping[str, Range]) -> list[MixedConcat]:
    """Concats whose inputs' magnitudes differ by more than 16 times; dead inputs do not count."""
    return [
        mixed
        for group in summary.groups
        if group.kind == "concat"
        for mixed in [_mixed(group, ranges)]
        if mixed.ratio > MIXED_RATIO
    ]


def keep_apart(
    summary: GraphSummary, decisions: dict[str, Decision], lane: Lane, mixed: Sequence[str], asked: AbstractSet[str]
) -> None:
    """Change the decisions of the ``mixed`` concats that compute in int8. asked: groups that an override names."""
    needed = computed_with(summary, decisions)
    for group in summary.groups:
        if group.name not in mixed or group.name in asked or decisions[group.name].precision != "int8":
            continue
        precision: Precision = "int16" if needed.intersection(group.outputs) else lane.fallback
        how = "16 bits" if precision == "int16" else "each has a scale of its own"
        decisions[group.name] = Decision(precision=precision, why=f"{KEPT_APART}: {how}")


def computed_with(summary: GraphSummary, decisions: Mapping[str, Decision]) -> set[str]:
    """Tensors that an integer kernel computes with, itself or behind integer movements and concats."""
    integer = [group for group in summary.groups if is_integer(decisions[group.name].precision)]
    needed = {name for group in integer if group.kind not in SHARING_KINDS for name in group.inputs}
    for group in reversed(integer):  # topological order: behind a movement that is needed, its inputs are
        if group.kind in SHARING_KINDS and needed.intersection(group.outputs):
            needed.update(group.inputs)
    return needed


def _mixed(group: FusionGroup, ranges: Mapping[str, Range]) -> MixedConcat:
    absmax = {name: ranges[name].absmax for name in group.inputs if name in ranges and not ranges[name].dead}
    ratio = max(absmax.values()) / min(absmax.values()) if absmax else 1.0
    return MixedConcat(group=group.name, ratio=ratio, absmax=absmax)
