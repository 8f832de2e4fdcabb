"""Room ``graph``: layer overrides against graph.json. A summary and overrides enter, matched names or faults leave.

Pure Python, so that a wrong name is found in seconds. A name pattern (fnmatch, case counts) selects a node by its own
name, by the name of a tensor that it makes, or by the name which that tensor had in the original model; an operator
type selects by type; both together must hold for the same node. A group is matched when one of its nodes is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.graph.summary import GraphSummary, NodeFact
from npubake.nearest import did_you_mean

_NEAREST = 3  # names are long and alike: a few to choose from


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedOverride:
    """What one override stands for. index: its position in the recipe; groups, nodes: matched names in graph order."""

    index: int
    groups: tuple[str, ...]
    nodes: tuple[str, ...]


def resolve_overrides(summary: GraphSummary, overrides: Sequence[Mapping[str, Any]]) -> tuple[ResolvedOverride, ...]:
    """One answer for each override, in order. Raises RecipeError, a fault for every selector that selects nothing."""
    resolved, faults = match_overrides(summary, overrides)
    if faults:
        raise RecipeError(*faults)
    return resolved


def match_overrides(
    summary: GraphSummary, overrides: Sequence[Mapping[str, Any]]
) -> tuple[tuple[ResolvedOverride, ...], list[Fault]]:
    """``resolve_overrides`` for callers that gather faults: the answers, and what selects nothing."""
    names = _names_of_nodes(summary)
    resolved: list[ResolvedOverride] = []
    faults: list[Fault] = []
    for index, override in enumerate(overrides):
        match = override.get("match", {})
        path = f"$.layer_overrides[{index}].match"
        problems = [*_unknown_types(summary, match, path), *_unmatched_names(names, match, path)]
        nodes = [node for node in summary.nodes if _selected(node, names[node.name], match)]
        if not nodes and not problems:
            what = "nothing in the optimised model has both a name and an operator type of this override"
            if not match:
                what = "the override selects nothing: neither names nor operator types are given"
            hint = "the names of each type: npubake list layers TARGET"
            problems.append(Fault(what=what, path=path, hint=hint))
        faults.extend(problems)
        chosen = {node.name for node in nodes}
        groups = tuple(group.name for group in summary.groups if chosen & set(group.nodes))
        resolved.append(ResolvedOverride(index=index, groups=groups, nodes=tuple(node.name for node in nodes)))
    return tuple(resolved), faults


def _names_of_nodes(summary: GraphSummary) -> dict[str, tuple[str, ...]]:
    """Node name -> every name that selects the node."""
    former: dict[str, list[str]] = {}
    for record in summary.provenance:
        if record.relation != "gone":
            former.setdefault(record.new, []).append(record.old)
    return {
        node.name: (node.name, *node.outputs, *(old for tensor in node.outputs for old in former.get(tensor, ())))
        for node in summary.nodes
    }


def _selected(node: NodeFact, names: Sequence[str], match: Mapping[str, Any]) -> bool:
    patterns, types = match.get("names", ()), match.get("op_types", ())
    if not patterns and not types:
        return False
    named = not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
    return named and (not types or node.op_type in types)


def _unknown_types(summary: GraphSummary, match: Mapping[str, Any], path: str) -> Iterable[Fault]:
    known = {node.op_type for node in summary.nodes}
    for position, wanted in enumerate(match.get("op_types", ())):
        if wanted not in known:
            what = f"the optimised model has no operator of type {wanted!r}"
            yield Fault(what=what, path=f"{path}.op_types[{position}]", hint=did_you_mean(wanted, known))


def _unmatched_names(names: Mapping[str, Sequence[str]], match: Mapping[str, Any], path: str) -> Iterable[Fault]:
    known = {name for several in names.values() for name in several}
    for position, pattern in enumerate(match.get("names", ())):
        if not any(fnmatchcase(name, pattern) for name in known):
            what = f"{pattern!r} matches no node or tensor of the optimised model"
            yield Fault(what=what, path=f"{path}.names[{position}]", hint=did_you_mean(pattern, known, _NEAREST))
