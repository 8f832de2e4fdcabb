"""quant: from statistics and a request to all quantisation parameters. numpy and plain data; no onnx, no paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npubake.calibration.statistics import TensorStatistics
from npubake.errors import Fault, RecipeError
from npubake.graph.bit_policy import override_paths
from npubake.graph.summary import WEIGHTED_KINDS, GraphSummary
from npubake.quant.half_precision import beyond_float16
from npubake.quant.lanes import is_integer
from npubake.quant.loading import overlaid, require_all, with_loaded_bits
from npubake.quant.mixed_concats import KEPT_APART, MixedConcat, mixed_concats
from npubake.quant.operands import ModelFacts, WeightedOperand, nodes_by_name, weighted_operand
from npubake.quant.parameters import QuantizationParameters, TensorParameters, WeightParameters
from npubake.quant.precisions import Precisions, decide_precisions
from npubake.quant.ranges import Range
from npubake.quant.record import CalibrationRecord, Override
from npubake.quant.request import Request, asked
from npubake.quant.scales import ClassRange, class_parameters
from npubake.quant.tensor_ranges import (
    barely_used,
    class_ranges,
    lowest_scores,
    tensor_ranges,
    tensor_thresholds,
    wide_ranges,
)
from npubake.quant.thresholds import Threshold
from npubake.quant.weight_choice import weight_formats
from npubake.quant.weight_formats import WeightFormat
from npubake.quant.weight_scales import WeightedFacts, weight_parameters
from npubake.quant.weights import ChannelWeights, channel_weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """The model to quantise: its summary and that file's digest, constants and attributes, statistics by tensor."""

    summary: GraphSummary
    graph_digest: str
    facts: ModelFacts
    statistics: Mapping[str, TensorStatistics]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What ``assign`` makes: the parameters, and the record of how they came about."""

    parameters: QuantizationParameters
    record: CalibrationRecord


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Weighted:
    """The weighted integer groups: operands and their extremes by group name, in topological order."""

    operands: Mapping[str, WeightedOperand]
    extremes: Mapping[str, ChannelWeights]


def assign(subject: Subject, request: Request, matched: Sequence[tuple[str, ...]]) -> Assignment:
    """All parameters of ``request`` for ``subject``. matched: names of the groups that each layer override matches.

    Raises StageError (statistics missing or not finite, an operand that is not there, scales that cannot be settled)
    and RecipeError (a range declared for something that is no input).
    """
    summary = subject.summary
    _check_inputs(summary, request)
    thresholds = tensor_thresholds(summary, request, matched)
    ranges = tensor_ranges(summary, subject.statistics, thresholds, request.input_ranges)
    ranges, thresholds = overlaid(ranges, thresholds, request.loaded)
    formats = weight_formats(summary, request, matched)
    mixed = mixed_concats(summary, ranges)
    precisions = decide_precisions(
        summary,
        request.lane,
        with_loaded_bits(summary, request.lane.name, asked(request, matched), request.loaded),
        beyond_float16(summary, subject.statistics, ranges),
        [entry.group for entry in mixed],
        formats.by_group,
    )
    require_all(precisions.dtypes, request.loaded)
    ranges = {**ranges, **wide_ranges(summary, subject.statistics, request.input_ranges, precisions)}
    ranges, thresholds = overlaid(ranges, thresholds, request.loaded)
    weighted = _weighted(subject, precisions, formats.by_group)
    classes = _classes(subject, request, precisions, ranges, thresholds)
    tensors = class_parameters(classes, {name: precisions.classes.of[name] for name in precisions.dtypes})
    weights, facts = _weights(summary, precisions, weighted, tensors)
    parameters = QuantizationParameters(
        graph_digest=subject.graph_digest,
        lane=request.lane.name,
        tensors=tensors,
        groups=precisions.groups,
        weights=weights,
        inner=tuple(name for name in tensors if name in precisions.inner),
    )
    record = CalibrationRecord(
        overrides=_overrides(request, matched, precisions),
        kept_weights=tuple(entry for entry in formats.kept if entry.group in weights),
        dead_tensors=tuple(name for name in tensors if ranges[name].dead),
        cut_ranges=tuple(name for name in tensors if classes[precisions.classes.of[name]].cut),
        float16_overflow=precisions.overflow,
        mixed_concats=_decided(mixed, precisions),
        barely_used=_barely_used(subject, request, tensors),
        narrowed=precisions.narrowed,
        shared_scales=_shared(precisions, classes),
        weighted=facts,
    )
    return Assignment(parameters=parameters, record=record)


def _classes(
    subject: Subject,
    request: Request,
    precisions: Precisions,
    ranges: Mapping[str, Range],
    thresholds: Mapping[str, Threshold],
) -> dict[str, ClassRange]:
    """The classes' ranges; declared and loaded ones are not cut as masks or masked scores are."""
    kept = {*request.input_ranges, *(request.loaded.tensors if request.loaded else ())}
    lowest = lowest_scores(subject.summary, subject.statistics, kept)
    return class_ranges(subject.summary, precisions, ranges, thresholds, lowest, kept)


def _shared(precisions: Precisions, classes: Mapping[str, ClassRange]) -> tuple[tuple[str, ...], ...]:
    """The tensors of each class that holds more than one."""
    members = precisions.classes.members
    return tuple(held for first, held in members.items() if first in classes and len(held) > 1)


def _decided(mixed: Sequence[MixedConcat], precisions: Precisions) -> tuple[MixedConcat, ...]:
    """Concats of large beside small, with what became of them; without those that an override decided."""
    return tuple(
        replace(entry, precision=decided.precision)
        for entry in mixed
        for decided in [precisions.groups[entry.group]]
        if decided.precision == "int8" or decided.why.startswith(KEPT_APART)
    )


def _barely_used(subject: Subject, request: Request, tensors: Mapping[str, TensorParameters]) -> dict[str, float]:
    """Tensors held as integers whose fixed range was hardly touched, with the largest value seen."""
    found = barely_used(subject.summary, subject.statistics, request.input_ranges)
    return {name: largest for name, largest in found.items() if name in tensors}


def _check_inputs(summary: GraphSummary, request: Request) -> None:
    known = [name for name in summary.inputs if summary.tensors[name].dtype == "float32"]
    faults = [
        Fault(what=f"{name!r} is no float input of the model", path=f"$.input_ranges.{name}", hint=f"one of {known}")
        for name in request.input_ranges
        if name not in known and name not in summary.declared
    ]
    if faults:
        raise RecipeError(*faults)


def _overrides(request: Request, matched: Sequence[tuple[str, ...]], precisions: Precisions) -> tuple[Override, ...]:
    return tuple(
        Override(
            path=path,
            match=entry.get("match", {}),
            change=entry.get("set", {}),
            groups=groups,
            declined=precisions.declined.get(path, ()),
        )
        for path, entry, groups in zip(override_paths(request.overrides), request.overrides, matched, strict=True)
    )


def _integer_groups(precisions: Precisions) -> frozenset[str]:
    return frozenset(name for name, entry in precisions.groups.items() if is_integer(entry.precision))


def _weighted(subject: Subject, precisions: Precisions, formats: Mapping[str, WeightFormat]) -> _Weighted:
    integer = _integer_groups(precisions)
    nodes = nodes_by_name(subject.summary)
    operands = {
        group.name: weighted_operand(subject.summary, group, subject.facts, nodes)
        for group in subject.summary.groups
        if group.kind in WEIGHTED_KINDS and group.name in integer
    }
    extremes = {
        name: channel_weights(operand.weights, operand.axis, operand.channel_bias(), formats[name])
        for name, operand in operands.items()
    }
    return _Weighted(operands=operands, extremes=extremes)


def _weights(
    summary: GraphSummary, precisions: Precisions, weighted: _Weighted, tensors: Mapping[str, TensorParameters]
) -> tuple[dict[str, WeightParameters], dict[str, WeightedFacts]]:
    weights, facts = {}, {}
    for group in summary.groups:
        if group.name in weighted.operands:
            unrounded = precisions.groups[group.name].accumulator_output
            weights[group.name], facts[group.name] = weight_parameters(
                weighted.operands[group.name],
                weighted.extremes[group.name],
                tensors[group.inputs[0]],
                None if unrounded else tensors[group.outputs[0]],
            )
    return weights, facts
