"""quant: what every group computes in and which integer type every tensor takes. Names in, names out; no onnx.

Order of decisions: the lane; the layer overrides, the later one wins; float16 groups that touch a tensor beyond
float16's range go to int16; concats of boxes beside scores are kept apart (quant/mixed_concats.py); movements behind
groups in float follow them (quant/following.py); inner tensors of fused functions are int16 (quant/fusing.py); tensors
take the widest type asked of them, by a group's precision or for what it makes alone; classes that share a scale take
their widest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any

from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary
from npubake.quant.following import Narrowed, follow_makers, narrowed
from npubake.quant.fusing import inner_tensors
from npubake.quant.lanes import (
    Decision,
    Lane,
    float_tensors,
    has_integer_kernel,
    holds_float,
    is_integer,
    lane_decision,
)
from npubake.quant.mixed_concats import keep_apart
from npubake.quant.parameters import GroupParameters, IntegerType, OutputPrecision, Precision
from npubake.quant.sharing import SHARING_KINDS, SharingClasses, sharing_classes
from npubake.quant.weight_formats import WeightFormat

_REACH = {"uint8": 255, "int16": 2**15}  # largest |q - zero point|
GEMM_KINDS = (*WEIGHTED_KINDS, "matmul")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One layer override after matching. path: its place in the recipe; groups: the groups it matched; precision: what
    it asks of them; output: the integer type of what they make, whatever they compute in; fuse: False keeps what they
    make from being an inner tensor.
    """

    path: str
    groups: tuple[str, ...]
    precision: Precision | None = None
    output: OutputPrecision | None = None
    fuse: bool | None = None

    @classmethod
    def of(cls, path: str, groups: tuple[str, ...], change: Mapping[str, Any]) -> Asked:
        """change: the override's ``set``."""
        return cls(
            path=path,
            groups=groups,
            precision=change.get("activation"),
            output=change.get("output"),
            fuse=change.get("fuse"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Precisions:
    """groups: precision of each; dtypes: integer type of each tensor that is held as an integer; classes: who shares a
    scale; inner: tensors between a weighted group and its fused function; declined: override path -> groups that could
    not follow it; overflow: tensors beyond float16, with the groups that went to int16 (or float32, having no integer
    kernel) for it; narrowed: overrides that are rounded away again.
    """

    groups: Mapping[str, GroupParameters]
    dtypes: Mapping[str, IntegerType]
    classes: SharingClasses
    inner: frozenset[str]
    declined: Mapping[str, tuple[str, ...]]
    overflow: Mapping[str, tuple[str, ...]]
    narrowed: tuple[Narrowed, ...]

    def holds_weights(self, group: FusionGroup) -> bool:
        """True where the group has constant weights, in integers."""
        return group.kind in WEIGHTED_KINDS and is_integer(self.groups[group.name].precision)


def decide_precisions(
    summary: GraphSummary,
    lane: Lane,
    asked: Sequence[Asked],
    beyond_float16: frozenset[str],
    mixed: Sequence[str] = (),
    formats: Mapping[str, WeightFormat] | None = None,
) -> Precisions:
    """Apply the lane, the overrides in order, and what follows from them.

    beyond_float16: tensors that it ruins; mixed: concats of large beside small values; formats: of the weights, by
    group; the format of those that are not named is int8 a channel.
    """
    operators = {node.name: node.op_type for node in summary.nodes}
    decisions = {
        group.name: lane_decision(summary, group, frozenset(operators[node] for node in group.nodes), lane)
        for group in summary.groups
    }
    declined = _override(summary, decisions, asked)
    overflow = _leave_float16(summary, decisions, beyond_float16)
    named = frozenset(name for entry in asked if entry.precision is not None for name in entry.groups)
    keep_apart(summary, decisions, lane, mixed, named)
    follow_makers(summary, decisions, named, beyond_float16)
    integer = frozenset(name for name, decision in decisions.items() if is_integer(decision.precision))
    classes = sharing_classes(summary, integer)
    unrounded = frozenset[str]() if lane.everywhere else accumulator_groups(summary, integer)
    unfused = frozenset(decisions) if lane.everywhere else _unfused(asked)
    inner = inner_tensors(summary, decisions, classes, unfused)
    wide = {classes.of[name] for name in (*inner, *_lifted(summary, asked))}
    dtypes = _tensor_types(summary, decisions, classes, unrounded, wide)
    rounded = _beyond_int32(summary, unrounded, dtypes) | _wide_weights(summary, unrounded, dtypes, formats or {})
    unrounded -= rounded
    wide |= {classes.of[name] for group in summary.groups if group.name in rounded for name in group.outputs}
    dtypes = _tensor_types(summary, decisions, classes, unrounded, wide)
    _follow_class(summary, decisions, dtypes)
    groups = {
        name: GroupParameters(precision=entry.precision, accumulator_output=name in unrounded, why=entry.why)
        for name, entry in decisions.items()
    }
    lost = narrowed(summary, decisions, dtypes, frozenset(entry.path for entry in asked))
    return Precisions(
        groups=groups,
        dtypes=dtypes,
        classes=classes,
        inner=inner,
        declined=declined,
        overflow=overflow,
        narrowed=lost,
    )


def accumulator_groups(summary: GraphSummary, integer: frozenset[str]) -> frozenset[str]:
    """Integer GEMM-like groups that no integer group reads: at the graph's tail, or read in float alone."""
    read = {name for group in summary.groups if group.name in integer for name in group.inputs}
    return frozenset(
        group.name
        for group in summary.groups
        if group.name in integer and group.kind in GEMM_KINDS and not read.intersection(group.outputs)
    )


def _beyond_int32(
    summary: GraphSummary, unrounded: frozenset[str], dtypes: Mapping[str, IntegerType]
) -> frozenset[str]:
    """Products of two computed tensors whose sum may pass int32: they are rounded like any other group.

    (Weights are made coarser instead, quant/weight_scales.py; computed tensors of 16 bits pass it with two products.)
    """
    return frozenset(
        group.name
        for group in summary.groups
        if group.kind == "matmul"
        and group.name in unrounded
        and summary.tensors[group.inputs[0]].shape[-1] * prod(_REACH[dtypes[name]] for name in _operands(group))
        >= 2**31
    )


def _wide_weights(
    summary: GraphSummary,
    unrounded: frozenset[str],
    dtypes: Mapping[str, IntegerType],
    formats: Mapping[str, WeightFormat],
) -> frozenset[str]:
    """Groups whose weights of more than 8 bits, or of a scale a group beside 16-bit inputs, would have to be made much
    coarser for their sum to stay within int32: they are rounded to int16 like any other group.
    """
    found = set()
    for group in summary.groups:
        held = formats.get(group.name)
        if held is not None and group.name in unrounded:
            grouped = held.granularity == "per_group" and dtypes[group.inputs[0]] == "int16"
            if held.dtype == "int16" or grouped:
                found.add(group.name)
    return frozenset(found)


def _operands(group: FusionGroup) -> tuple[str, str]:
    return group.inputs[0], group.inputs[-1]  # one name where a tensor is multiplied by itself


def _override(
    summary: GraphSummary, decisions: dict[str, Decision], asked: Sequence[Asked]
) -> dict[str, tuple[str, ...]]:
    """Apply overrides in order; answer which groups could not follow which."""
    groups = {group.name: group for group in summary.groups}
    declined: dict[str, tuple[str, ...]] = {}
    for entry in asked:
        if entry.precision is None:
            continue
        unable = tuple(name for name in entry.groups if not _can(summary, groups[name], entry.precision))
        for name in entry.groups:
            if name not in unable:
                decisions[name] = Decision(precision=entry.precision, why=entry.path)
        if unable:
            declined[entry.path] = unable
    return declined


def _can(summary: GraphSummary, group: FusionGroup, precision: Precision) -> bool:
    return has_integer_kernel(summary, group) if is_integer(precision) else holds_float(summary, group)


def _leave_float16(
    summary: GraphSummary, decisions: dict[str, Decision], beyond: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Groups in float16 that make or read a tensor beyond its range go to int16; those without a kernel to float32."""
    moved: dict[str, tuple[str, ...]] = {}
    for group in summary.groups:
        large = beyond.intersection((*group.inputs, *group.outputs))
        if not large or decisions[group.name].precision != "float16":
            continue
        precision: Precision = "int16" if has_integer_kernel(summary, group) else "float32"
        decisions[group.name] = Decision(precision=precision, why=f"beyond float16: {', '.join(sorted(large))}")
        for name in large:
            moved[name] = (*moved.get(name, ()), group.name)
    return dict(sorted(moved.items()))


def _unfused(asked: Sequence[Asked]) -> frozenset[str]:
    """Groups whose result an override keeps from being an inner tensor; the later override wins."""
    fused = {name: entry.fuse for entry in asked if entry.fuse is not None for name in entry.groups}
    return frozenset(name for name, fuse in fused.items() if not fuse)


def _lifted(summary: GraphSummary, asked: Sequence[Asked]) -> list[str]:
    """Tensors of which an override asks 16 bits whatever their maker computes in; the later override wins."""
    outputs = {name: entry.output for entry in asked if entry.output is not None for name in entry.groups}
    return [
        name
        for group in summary.groups
        if outputs.get(group.name) == "int16"
        for name in float_tensors(summary, group.outputs)
    ]


def _tensor_types(
    summary: GraphSummary,
    decisions: Mapping[str, Decision],
    classes: SharingClasses,
    unrounded: frozenset[str],
    lifted: AbstractSet[str],
) -> dict[str, IntegerType]:
    """The widest integer type that a maker or reader asks of each tensor or of one that shares its scale.

    lifted: representatives of classes that hold 16 bits whatever is computed in.
    """
    wide: dict[str, bool] = dict.fromkeys(lifted, True)
    held: set[str] = set()
    for group in summary.groups:
        precision = decisions[group.name].precision
        if not is_integer(precision):
            continue
        makes = () if group.name in unrounded else group.outputs
        for name in float_tensors(summary, (*group.inputs, *makes)):
            held.add(name)
            first = classes.of[name]
            wide[first] = wide.get(first, False) or precision == "int16"
    return {name: "int16" if wide[classes.of[name]] else "uint8" for name in summary.quantisable() if name in held}


def _follow_class(summary: GraphSummary, decisions: dict[str, Decision], dtypes: Mapping[str, IntegerType]) -> None:
    """Movements and concats compute in the type their tensors were given."""
    for group in summary.groups:
        entry = decisions[group.name]
        if group.kind in SHARING_KINDS and entry.precision == "int8" and dtypes[group.outputs[0]] == "int16":
            decisions[group.name] = Decision(precision="int16", why=f"{entry.why}, shares its scale with int16")
