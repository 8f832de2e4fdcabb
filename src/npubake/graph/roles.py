"""Room ``graph``: which part a layer plays in its network. graph.json enters, roles of its groups leave; pure Python.

Roles are read off the shape of the graph, never off names. *Weighted* groups are conv, conv_transpose and linear.

first_layer       no weighted group stands between a graph input and it
last_layer        no weighted group comes after it
head              its result reaches a graph output past no other weighted group; where there are several last layers
                  (a detector), also what serves one of them alone, behind a layer that serves more
query, key        the projections whose product a Softmax reads: softmax(Q K^T) V, left and right factor
value             the projection of V
attention_output  the first weighted groups that read the product with V
norm_adjacent     it reads a LayerNormalization past movements, or its result reaches one past movements and sums
ffn               linear layers with nothing but element-wise functions between them, at least one of them not linear
                  (linear -> GELU -> linear; linear -> SiLU, times a linear of the same input -> linear), in a network
                  with attention, or behind a LayerNormalization: a classifier's own fully connected layers are none

One group may play several parts: a fused QKV projection is query, key and value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary

Role = Literal["norm_adjacent", "first_layer", "last_layer", "head", "query", "key", "value", "attention_output", "ffn"]
ROLES: tuple[Role, ...] = get_args(Role)

_ELEMENTWISE = ("table", "multiply", "divide", "add", "movement")
_CURVED = ("table", "softmax")
_ATTENTION: frozenset[Role] = frozenset(("query", "key", "value", "attention_output"))


def roles_of(summary: GraphSummary) -> Mapping[str, frozenset[Role]]:
    """Group name -> its roles, for groups that have one, in graph order."""
    net = _Net.of(summary)
    found: dict[str, set[Role]] = {group.name: set() for group in summary.groups}
    _edges(net, found)
    attention = [_attend(net, group, found) for group in summary.groups if group.kind == "softmax"]
    _feed_forward(net, found, any(attention))
    _beside_norms(net, found)
    return {name: frozenset(roles) for name, roles in found.items() if roles}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Net:
    """Who makes and who reads each tensor, as groups."""

    summary: GraphSummary
    makers: Mapping[str, FusionGroup]
    readers: Mapping[str, tuple[FusionGroup, ...]]

    @classmethod
    def of(cls, summary: GraphSummary) -> _Net:
        return cls(summary=summary, makers=summary.producer_group(), readers=summary.reader_groups())

    def following(self, tensors: Iterable[str]) -> Iterable[FusionGroup]:
        return (group for tensor in tensors for group in self.readers.get(tensor, ()))


def _edges(net: _Net, found: dict[str, set[Role]]) -> None:
    """first_layer, last_layer and head."""
    groups, serves = net.summary.groups, _served(net)
    weighted = [group for group in groups if group.kind in WEIGHTED_KINDS]
    lasts = {group.name for group in weighted if serves[group.name] == {group.name}}
    after_weighted: set[str] = set()
    after_shared: set[str] = set()
    for group in groups:
        behind = not after_weighted.isdisjoint(group.inputs)
        branched = not after_shared.isdisjoint(group.inputs)
        if group.kind in WEIGHTED_KINDS:
            found[group.name] |= {"first_layer"} if not behind else set()
            found[group.name] |= {"last_layer"} if group.name in lasts else set()
            found[group.name] |= {"head"} if branched and len(serves[group.name]) == 1 else set()
            branched = branched or len(serves[group.name]) > 1
        after_weighted.update(group.outputs if behind or group.kind in WEIGHTED_KINDS else ())
        after_shared.update(group.outputs if branched else ())
    to_output = set(net.summary.outputs)
    for group in reversed(groups):
        if to_output.isdisjoint(group.outputs):
            continue
        if group.kind in WEIGHTED_KINDS:
            found[group.name].add("head")
        else:
            to_output.update(group.inputs)


def _served(net: _Net) -> dict[str, frozenset[str]]:
    """Weighted group -> the last layers that it comes before (itself, where it is one); of several, any two."""
    reached: dict[str, frozenset[str]] = {}
    serves: dict[str, frozenset[str]] = {}
    for group in reversed(net.summary.groups):
        ahead = frozenset().union(*(reached.get(tensor, frozenset()) for tensor in group.outputs))
        if group.kind in WEIGHTED_KINDS:
            ahead = serves[group.name] = ahead or frozenset((group.name,))
        for tensor in group.inputs:
            reached[tensor] = frozenset(sorted(reached.get(tensor, frozenset()) | ahead)[:2])
    return serves


def _attend(net: _Net, softmax: FusionGroup, found: dict[str, set[Role]]) -> bool:
    """Name the projections around one Softmax; False where it stands in no attention."""
    scores = _makers_behind(net, softmax.inputs, ("matmul",))
    mixed = _readers_ahead(net, softmax.outputs, ("matmul",), ("movement",))
    if len(scores) != 1 or len(mixed) != 1:
        return False
    product, result = scores[0], mixed[0]
    passed = _moved(net, softmax.outputs)
    left, right = product.inputs[0], product.inputs[-1]
    parts: list[tuple[Role, str]] = [("query", left), ("key", right)]
    parts += [("value", tensor) for tensor in result.inputs if tensor not in passed]
    for role, tensor in parts:
        for name in _projections(net, tensor):
            found[name].add(role)
    for group in _readers_ahead(net, result.outputs, WEIGHTED_KINDS, ("movement", "concat", "multiply")):
        found[group.name].add("attention_output")
    return True


def _makers_behind(net: _Net, tensors: Iterable[str], kinds: tuple[str, ...]) -> list[FusionGroup]:
    """The nearest groups of ``kinds`` that ``tensors`` are made of, past no weighted one."""
    met: dict[str, FusionGroup] = {}
    waiting, seen = list(tensors), set(tensors)
    while waiting:
        group = net.makers.get(waiting.pop())
        if group is None:
            continue
        if group.kind in kinds:
            met[group.name] = group
        elif group.kind not in WEIGHTED_KINDS:
            fresh = [tensor for tensor in group.inputs if tensor not in seen]
            seen.update(fresh)
            waiting += fresh
    return list(met.values())


def _readers_ahead(
    net: _Net, tensors: Iterable[str], kinds: tuple[str, ...], through: tuple[str, ...]
) -> list[FusionGroup]:
    """The nearest groups of ``kinds`` that read ``tensors``, past groups of the kinds ``through`` only."""
    met: dict[str, FusionGroup] = {}
    waiting, seen = list(tensors), set(tensors)
    while waiting:
        for group in net.readers.get(waiting.pop(), ()):
            if group.kind in kinds:
                met[group.name] = group
            elif group.kind in through:
                fresh = [tensor for tensor in group.outputs if tensor not in seen]
                seen.update(fresh)
                waiting += fresh
    return list(met.values())


def _moved(net: _Net, tensors: Iterable[str]) -> set[str]:
    """``tensors`` and every movement of them."""
    waiting, seen = list(tensors), set(tensors)
    while waiting:
        for group in net.readers.get(waiting.pop(), ()):
            if group.kind == "movement":
                waiting += [tensor for tensor in group.outputs if tensor not in seen]
                seen.update(group.outputs)
    return seen


def _projections(net: _Net, tensor: str) -> frozenset[str]:
    """The weighted groups whose result ``tensor`` is, moved, scaled, normalised or turned (RoPE).

    A sum of two computed tensors is followed where both sides come of the same groups: a residual stream is not.
    """
    known: dict[str, frozenset[str]] = {}
    pending = [tensor]
    while pending:
        current = pending[-1]
        group = net.makers.get(current)
        if current in known or group is None or group.kind in ("matmul", "softmax"):
            known.setdefault(current, frozenset())
            pending.pop()
            continue
        if group.kind in WEIGHTED_KINDS:
            known[current] = frozenset((group.name,))
            pending.pop()
            continue
        missing = [name for name in group.inputs if name not in known]
        if missing:
            pending += missing
            continue
        sides = [known[name] for name in group.inputs]
        mixed = group.kind == "add" and len(set(sides)) > 1
        known[current] = frozenset() if mixed else frozenset().union(*sides)
        pending.pop()
    return known[tensor]


def _feed_forward(net: _Net, found: dict[str, set[Role]], attention: bool) -> None:
    for group in net.summary.groups:
        if group.kind != "linear" or found[group.name] & _ATTENTION:
            continue
        if attention or _normalised(net, group):
            members = _feed_forward_of(net, group, found)
            for name in members:
                found[name].add("ffn")


def _normalised(net: _Net, group: FusionGroup) -> bool:
    """True where the group reads a LayerNormalization, or a movement of one."""
    makers = [net.makers.get(tensor) for tensor in group.inputs]
    while makers and makers[0] is not None and makers[0].kind == "movement":
        makers = [net.makers.get(makers[0].inputs[0])]
    return bool(makers) and makers[0] is not None and makers[0].kind == "layer_norm"


def _beside_norms(net: _Net, found: dict[str, set[Role]]) -> None:
    """norm_adjacent, from the outputs inwards."""
    read_by_norms: set[str] = set()
    for group in reversed(net.summary.groups):
        sums = group.kind in ("movement", "add") and not read_by_norms.isdisjoint(group.outputs)
        if sums or group.kind == "layer_norm":
            read_by_norms.update(group.inputs)
        elif group.kind in WEIGHTED_KINDS and (not read_by_norms.isdisjoint(group.outputs) or _normalised(net, group)):
            found[group.name].add("norm_adjacent")


def _feed_forward_of(net: _Net, first: FusionGroup, found: Mapping[str, set[Role]]) -> list[str]:
    """``first``, its partners (linear groups of the same input) that meet it, and the linear groups that read only what
    became of them; empty where there is no such pair.
    """
    partners = [
        group
        for group in net.following(first.inputs)
        if group.kind == "linear" and group.inputs == first.inputs and not found[group.name] & _ATTENTION
    ]
    origin = {tensor: frozenset((group.name,)) for group in partners for tensor in group.outputs}
    curved = {tensor for group in partners if group.function for tensor in group.outputs}
    waiting, members = [tensor for group in partners for tensor in group.outputs], []
    while waiting:
        for group in net.readers.get(waiting.pop(), ()):
            if not all(tensor in origin for tensor in group.inputs) or group.outputs[0] in origin:
                continue
            sources = frozenset().union(*(origin[tensor] for tensor in group.inputs))
            bent = group.kind in _CURVED or any(tensor in curved for tensor in group.inputs)
            if group.kind == "linear" and bent and first.name in sources:
                members += [*sorted(sources), group.name]
            elif group.kind in _ELEMENTWISE:
                origin.update(dict.fromkeys(group.outputs, sources))
                curved.update(group.outputs if bent else ())
                waiting += group.outputs
    return members
