"""quant: movements behind groups in float, and overrides whose wide result is rounded again. Names in, names out.

A movement that copies what a group in float made, and that no integer group reads, would quantise it for nobody: it
takes the float precision of its maker instead; so does a chain of such movements, up to the model's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.lanes import Decision, float_tensors, is_integer
from npubake.quant.mixed_concats import computed_with
from npubake.quant.parameters import IntegerType, Precision
from npubake.quant.sharing import SHARING_KINDS

_COMPUTED = frozenset({"MaxPool", "GlobalMaxPool", "Resize"})  # movements that an integer kernel computes


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What the override at ``path`` asked of ``group`` is rounded to ``dtype`` by ``reader``, for no integer reader."""

    path: str
    group: str
    tensor: str
    reader: str
    dtype: IntegerType


def follow_makers(
    summary: GraphSummary, decisions: dict[str, Decision], asked: frozenset[str], beyond_float16: frozenset[str]
) -> None:
    """Let movements follow makers in float. asked: groups that an override names; they keep what it asked.

    A concat of float16 and float32, or one that brings in values beyond float16, takes float32.
    """
    makers = summary.producer_group()
    following = _following(summary, decisions, asked, makers)
    for group in summary.groups:  # in topological order: the maker of a chain's second movement has already followed
        if group.name not in following:
            continue
        made_by = [makers[name] for name in float_tensors(summary, group.inputs)]
        wide = beyond_float16.intersection((*group.inputs, *group.outputs))
        precisions = {decisions[maker.name].precision for maker in made_by}
        precision: Precision = "float32" if wide or "float32" in precisions else "float16"
        names = ", ".join(dict.fromkeys(maker.name for maker in made_by))
        decisions[group.name] = Decision(
            precision=precision, why=f"follows {names} ({decisions[made_by[0].name].why}); no integer group reads it"
        )


def _following(
    summary: GraphSummary,
    decisions: Mapping[str, Decision],
    asked: frozenset[str],
    makers: Mapping[str, FusionGroup],
) -> set[str]:
    """The largest set of integer movements of which each reads floats or members alone, and only they read it."""
    operators = {node.name: node.op_type for node in summary.nodes}
    integer = {group.name for group in summary.groups if is_integer(decisions[group.name].precision)}
    members = {
        group.name: group
        for group in summary.groups
        if group.kind in SHARING_KINDS
        and group.name in integer - asked
        and not _COMPUTED.intersection(operators[node] for node in group.nodes)
    }
    while True:
        firm = integer - members.keys()
        read = {name for group in summary.groups if group.name in firm for name in group.inputs}
        wrong = [
            name
            for name, group in members.items()
            if read.intersection(group.outputs)
            or any(
                tensor not in makers or makers[tensor].name in firm for tensor in float_tensors(summary, group.inputs)
            )
        ]
        if not wrong:
            return set(members)
        for name in wrong:
            del members[name]


def narrowed(
    summary: GraphSummary, decisions: Mapping[str, Decision], dtypes: Mapping[str, IntegerType], paths: frozenset[str]
) -> tuple[Narrowed, ...]:
    """Results of groups that an override (its path is the decision's ``why``) put in float, and that a movement rounds
    to integers although no integer group computes with them.
    """
    integer = [group for group in summary.groups if is_integer(decisions[group.name].precision)]
    needed = computed_with(summary, decisions)
    return tuple(
        Narrowed(path=decisions[maker.name].why, group=maker.name, tensor=name, reader=reader.name, dtype=dtypes[name])
        for maker in summary.groups
        if decisions[maker.name].why in paths and not is_integer(decisions[maker.name].precision)
        for name in maker.outputs
        if name in dtypes and name not in needed
        for reader in integer
        if name in reader.inputs
    )
