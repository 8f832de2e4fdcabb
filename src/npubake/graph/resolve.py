"""Room ``graph``: layer overrides against graph.json. A summary and overrides enter, matched names or faults leave.

Pure Python, so that a wrong name is found in seconds. All selectors of one override must hold for the same node:

names, patterns  fnmatch, case counts: a node by its own name, by the name of a tensor that it makes, or by the name
                 which that tensor had in the original model (two spellings of one list)
op_types         its operator type
roles            the part its layer plays (graph/roles.py)
subgraph         it lies on a path from one of the tensors ``from`` (default: the inputs) to one of ``to`` (the outputs)

A group is matched when one of its nodes is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.graph.bit_policy import override_paths
from npubake.graph.roles import ROLES, Role, roles_of
from npubake.graph.subgraphs import nodes_between
from npubake.graph.summary import GraphSummary, NodeFact
from npubake.nearest import did_you_mean

_NEAREST = 3  # names are long and alike: a few to choose from
_SELECTORS = ("names", "patterns", "op_types", "roles", "subgraph")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedOverride:
    """What one override stands for. index: its position among those given; path: its place in the recipe
    (``layer_overrides[1]``, ``quant_config.bits.roles.query``); groups, nodes: matched names in graph order.
    """

    index: int
    path: str
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
    names = _Names(summary)
    resolved: list[ResolvedOverride] = []
    faults: list[Fault] = []
    for index, (place, override) in enumerate(zip(override_paths(overrides), overrides, strict=True)):
        match = override.get("match", {})
        policy = "path" in override  # of ``bits``: its place says already what it selects by
        chosen, problems = _select(names, match, f"$.{place}" if policy else f"$.{place}.match")
        faults.extend(replace(fault, path=f"$.{place}") if policy else fault for fault in problems)
        nodes = tuple(node.name for node in summary.nodes if node.name in chosen)
        groups = tuple(group.name for group in summary.groups if not chosen.isdisjoint(group.nodes))
        resolved.append(ResolvedOverride(index=index, path=place, groups=groups, nodes=nodes))
    return tuple(resolved), faults


class _Names:
    """What nodes and tensors of one graph answer to; each kind is gathered when it is first asked for."""

    def __init__(self, summary: GraphSummary) -> None:
        self.summary = summary

    @cached_property
    def former(self) -> dict[str, list[str]]:
        """Tensor -> names that it had in the original model."""
        found: dict[str, list[str]] = {}
        for record in self.summary.provenance:
            if record.relation != "gone":
                found.setdefault(record.new, []).append(record.old)
        return found

    @cached_property
    def of_nodes(self) -> dict[str, tuple[str, ...]]:
        """Node name -> every name that selects the node."""
        return {
            node.name: (
                node.name,
                *node.outputs,
                *(old for tensor in node.outputs for old in self.former.get(tensor, ())),
            )
            for node in self.summary.nodes
        }

    @cached_property
    def of_tensors(self) -> dict[str, tuple[str, ...]]:
        """Computed tensor, graph inputs too -> every name that it answers to."""
        tensors = (*self.summary.inputs, *(name for node in self.summary.nodes for name in node.outputs if name))
        return {tensor: (tensor, *self.former.get(tensor, ())) for tensor in tensors}

    @cached_property
    def of_roles(self) -> dict[Role, frozenset[str]]:
        """Role -> nodes of the groups that play it; only roles that some group plays."""
        played = roles_of(self.summary)
        nodes: dict[Role, set[str]] = {}
        for group in self.summary.groups:
            for role in played.get(group.name, ()):
                nodes.setdefault(role, set()).update(group.nodes)
        return {role: frozenset(nodes[role]) for role in ROLES if role in nodes}


def _select(names: _Names, match: Mapping[str, Any], path: str) -> tuple[frozenset[str], list[Fault]]:
    """Names of the nodes for which every selector holds, and the faults of selectors that select nothing."""
    given = [key for key in _SELECTORS if match.get(key)]
    if not given:
        what = f"the override selects nothing: none of {', '.join(_SELECTORS)} is given"
        return frozenset(), [Fault(what=what, path=path, hint="the names of each type: npubake list layers TARGET")]
    nodes = names.summary.nodes
    chosen = frozenset(node.name for node in nodes)
    faults = [
        *_unmatched_names(names, match, path),
        *_unknown_types(nodes, match, path),
        *_unplayed_roles(names, match, path),
    ]
    patterns, types = _patterns(match), match.get("op_types", ())
    if patterns:
        chosen &= {
            name for name, several in names.of_nodes.items() if any(_any(several, pattern) for _, pattern in patterns)
        }
    if types:
        chosen &= {node.name for node in nodes if node.op_type in types}
    if match.get("roles"):
        chosen &= {name for role in match["roles"] for name in names.of_roles.get(role, ())}
    if match.get("subgraph"):
        between, problems = _between(names, match["subgraph"], f"{path}.subgraph")
        chosen &= between
        faults += problems
    if not chosen and not faults:
        what = f"nothing in the optimised model has all of this override: {', '.join(given)}"
        faults.append(Fault(what=what, path=path, hint="the names of each type: npubake list layers TARGET"))
    return chosen, faults


def _any(several: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in several)


def _patterns(match: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(place in the match, pattern) of ``names`` and ``patterns``."""
    return [
        (f"{key}[{position}]", pattern)
        for key in ("names", "patterns")
        for position, pattern in enumerate(match.get(key, ()))
    ]


def _unmatched_names(names: _Names, match: Mapping[str, Any], path: str) -> Iterable[Fault]:
    known: set[str] = set()
    for place, pattern in _patterns(match):
        known = known or {name for several in names.of_nodes.values() for name in several}
        if not _any(known, pattern):
            what = f"{pattern!r} matches no node or tensor of the optimised model"
            yield Fault(what=what, path=f"{path}.{place}", hint=did_you_mean(pattern, known, _NEAREST))


def _unknown_types(nodes: Sequence[NodeFact], match: Mapping[str, Any], path: str) -> Iterable[Fault]:
    known = {node.op_type for node in nodes} if match.get("op_types") else set()
    for position, wanted in enumerate(match.get("op_types", ())):
        if wanted not in known:
            what = f"the optimised model has no operator of type {wanted!r}"
            yield Fault(what=what, path=f"{path}.op_types[{position}]", hint=did_you_mean(wanted, known))


def _unplayed_roles(names: _Names, match: Mapping[str, Any], path: str) -> Iterable[Fault]:
    for position, wanted in enumerate(match.get("roles", ())):
        place = f"{path}.roles[{position}]"
        if wanted not in ROLES:
            yield Fault(what=f"{wanted!r} is no role of a layer", path=place, hint=did_you_mean(wanted, ROLES))
        elif wanted not in names.of_roles:
            hint = f"roles that its layers have: {', '.join(names.of_roles) or 'none'}"
            yield Fault(what=f"no layer of the optimised model has the role {wanted!r}", path=place, hint=hint)


def _between(names: _Names, subgraph: Mapping[str, Any], path: str) -> tuple[frozenset[str], list[Fault]]:
    """Nodes on the paths of one ``subgraph``, and its faults."""
    ends: dict[str, set[str]] = {}
    faults: list[Fault] = []
    for side in ("from", "to"):
        ends[side] = set()
        for position, wanted in enumerate(subgraph.get(side, ())):
            found = {tensor for tensor, known in names.of_tensors.items() if wanted in known or _any(known, wanted)}
            ends[side] |= found
            if not found:
                known = {name for several in names.of_tensors.values() for name in several}
                what = f"the optimised model computes no tensor {wanted!r}"
                hint = did_you_mean(wanted, known, _NEAREST)
                faults.append(Fault(what=what, path=f"{path}.{side}[{position}]", hint=hint))
    if faults:
        return frozenset(), faults
    nodes = nodes_between(names.summary, ends["from"] or names.summary.inputs, ends["to"] or names.summary.outputs)
    if not nodes:
        what = "no layer lies on a path between these tensors"
        faults.append(Fault(what=what, path=path, hint="`from` stands nearer the inputs, `to` nearer the outputs"))
    return nodes, faults
