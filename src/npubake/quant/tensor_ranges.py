"""quant: the range of every tensor before scales are shared: declared, known by mathematics, or measured. No onnx."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from npubake.calibration.statistics import TensorStatistics
from npubake.errors import Fault, StageError
from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.masked_scores import lowest_score, reach_below
from npubake.quant.precisions import Precisions
from npubake.quant.ranges import DEAD_BELOW, Range, including_zero, intersection, snapped, union, widened
from npubake.quant.request import Request
from npubake.quant.saturation import FARTHEST, useful_range
from npubake.quant.scales import ClassRange
from npubake.quant.sharing import SHARING_KINDS
from npubake.quant.thresholds import INT16_LEVELS, UINT8_LEVELS, Threshold, measured_range

# Known by mathematics; 1.0 then has a code of its own (255 of 0..1 in uint8).
FIXED_RANGES: Mapping[str, Range] = {
    "softmax": Range(low=0.0, high=1.0),
    "sigmoid": Range(low=0.0, high=1.0),
    "hard_sigmoid": Range(low=0.0, high=1.0),
    "tanh": Range(low=-1.0, high=1.0),
}
# A fixed 0..1 of which less than this share was seen leaves fewer than 4 of 8 bits: then what was seen is the range.
UNUSED_BELOW = 1.0 / 16.0
WIDE_MARGIN = 2.0  # of what was seen, for int16: one of 16 bits (measured: docs/quantisation.md)
_POLES = ("log", "reciprocal")
_SYMMETRIC = ("tanh",)  # zero point 128 and scale 1/127: -1, 0 and 1 all have codes


def fixed_range(group: FusionGroup | None) -> Range | None:
    """The range that mathematics gives to what ``group`` makes, or None."""
    if group is None or group.kind not in ("softmax", "table"):
        return None
    return FIXED_RANGES.get("softmax" if group.kind == "softmax" else group.function)


def barely_used(
    summary: GraphSummary, statistics: Mapping[str, TensorStatistics], declared: Mapping[str, Range]
) -> dict[str, float]:
    """Tensors of a fixed range 0..1 whose largest value lies below 1/16, with that value; dead ones are left alone."""
    makers = summary.producer_group()
    found: dict[str, float] = {}
    for name in summary.quantisable():
        fixed, seen = fixed_range(makers.get(name)), statistics.get(name)
        if name in declared or fixed is None or fixed.low < 0.0 or seen is None or seen.count < 1:
            continue
        if DEAD_BELOW <= seen.maximum < UNUSED_BELOW * fixed.high:
            found[name] = seen.maximum
    return found


def tensor_thresholds(
    summary: GraphSummary, request: Request, matched: Sequence[tuple[str, ...]]
) -> dict[str, Threshold]:
    """How the range of each quantisable tensor is chosen. matched: group names of each override, in order.

    Graph inputs keep everything seen. Declared and fixed ranges keep both their ends, whatever is asked of measured
    ones: a picture in 0..1 keeps its 256 codes. An override reaches the outputs of its groups, and the inputs too where
    a group moves values (they share one range). The later override wins.
    """
    makers = summary.producer_group()
    chosen = dict.fromkeys(summary.quantisable(), request.threshold)
    for name in chosen:
        maker = makers.get(name)
        if name in request.input_ranges or fixed_range(maker) is not None:
            chosen[name] = Threshold(method="minmax", asymmetric=maker is None or maker.function not in _SYMMETRIC)
        elif maker is None:
            chosen[name] = Threshold(method="minmax", asymmetric=request.threshold.asymmetric)
    groups = {group.name: group for group in summary.groups}
    for settings, names in zip(request.settings, matched, strict=True):
        for group in (groups[name] for name in names if settings.changes_threshold):
            reached = (*group.inputs, *group.outputs) if group.kind in SHARING_KINDS else group.outputs
            for tensor in chosen.keys() & set(reached):
                chosen[tensor] = settings.applied(chosen[tensor])
    return chosen


def tensor_ranges(
    summary: GraphSummary,
    statistics: Mapping[str, TensorStatistics],
    thresholds: Mapping[str, Threshold],
    declared: Mapping[str, Range],
) -> dict[str, Range]:
    """Range of each quantisable tensor: declared ones verbatim, fixed ones as they are unless barely used, measured
    ones snapped outward.

    Raises StageError with every tensor whose statistics are missing, empty or not finite.
    """
    makers = summary.producer_group()
    measured = barely_used(summary, statistics, declared)
    ranges: dict[str, Range] = {}
    faults: list[Fault] = []
    for name in summary.quantisable():
        known = declared.get(name) or (None if name in measured else fixed_range(makers.get(name)))
        if known is not None:
            ranges[name] = known
        elif name not in statistics:
            faults.append(Fault(what=f"no statistics of tensor {name!r}", hint="observe this graph again"))
        else:
            try:
                ranges[name] = snapped(measured_range(statistics[name], thresholds[name]))
            except ValueError as error:
                faults.append(Fault(what=f"tensor {name!r}: {error}", hint="look for NaN or Inf in the samples"))
    if faults:
        raise StageError(*faults)
    return ranges


def wide_ranges(
    summary: GraphSummary,
    statistics: Mapping[str, TensorStatistics],
    declared: Mapping[str, Range],
    precisions: Precisions,
) -> dict[str, Range]:
    """Ranges of the measured tensors that hold 16 bits: all that was seen, and a margin, whatever the method.

    Clipping gains nothing where 65,535 levels are to be had, and the calibration set has not seen everything.
    """
    makers, measured = summary.producer_group(), barely_used(summary, statistics, declared)
    found: dict[str, Range] = {}
    for name, dtype in precisions.dtypes.items():
        fixed = name not in measured and fixed_range(makers.get(name)) is not None
        if dtype == "int16" and name not in declared and not fixed:
            seen = including_zero(statistics[name].minimum, statistics[name].maximum)
            found[name] = wide_range(makers.get(name), seen)
    return found


def wide_range(maker: FusionGroup | None, seen: Range) -> Range:
    """The range of a tensor that holds 16 bits: all that was ``seen``, and a margin but where a function has a pole.

    A value near the pole has the code of zero, whose result is the end of the range: at twice what was seen,
    log(1e-8 + 0) would become -37.
    """
    return widened(seen, 1.0 if maker is not None and maker.function in _POLES else WIDE_MARGIN)


def lowest_scores(
    summary: GraphSummary, statistics: Mapping[str, TensorStatistics], kept: Container[str]
) -> dict[str, float]:
    """Of each tensor of scores that a mask was added to: the lowest that is not masked (quant/masked_scores.py).

    kept: tensors whose range stays what it is.
    """
    read = {name for group in summary.groups if group.kind in ("softmax", "movement") for name in group.inputs}
    names = [name for name in summary.quantisable() if name in read and name in statistics and name not in kept]
    found = {name: lowest_score(statistics[name], max(len(summary.tensors[name].shape), 1)) for name in names}
    return {name: lowest for name, lowest in found.items() if lowest is not None}


def class_ranges(
    summary: GraphSummary,
    precisions: Precisions,
    ranges: Mapping[str, Range],
    thresholds: Mapping[str, Threshold],
    lowest: Mapping[str, float],
    kept: Container[str] = (),
) -> dict[str, ClassRange]:
    """Of each sharing class that is held in integers: the union of its sources' ranges, asymmetric where all are, cut
    where nothing that reads the class can tell the difference. lowest: of ``lowest_scores``; kept: never cut as a mask.
    """
    classes = precisions.classes
    spans = {first: union(ranges[source] for source in sources) for first, sources in classes.sources.items()}
    scores = {
        first: min(lowest[source] for source in sources)
        for first, sources in classes.sources.items()
        if lowest.keys() >= set(sources)
    }
    needed = _needed_ranges(summary, precisions, spans, scores)
    hidden = {first: span for first, span in needed.items() if first in scores}
    needed |= {first: span for first, span in _masks(summary, precisions, spans, hidden).items() if first not in kept}
    made: dict[str, ClassRange] = {}
    for name, dtype in precisions.dtypes.items():
        first = classes.of[name]
        sources = classes.sources[first]
        span = intersection(spans[first], needed.get(first, spans[first]))
        made[first] = ClassRange(
            span=span,
            dtype=dtype,
            asymmetric=all(thresholds[source].asymmetric for source in sources),
            cut=span != spans[first],
        )
    return made


def _needed_ranges(
    summary: GraphSummary, precisions: Precisions, spans: Mapping[str, Range], scores: Mapping[str, float]
) -> dict[str, Range]:
    """What the readers of a class can tell apart, for classes that only integer tables with flat ends read, and Softmax
    where scores are masked.
    """
    classes, needed = precisions.classes, dict[str, Range]()
    whole = {classes.of[name] for name in (*summary.inputs, *summary.outputs) if name in classes.of}
    for group in summary.groups:
        for first in {classes.of[name]: None for name in group.inputs if name in classes.of}:
            seen = _told_apart(group, first, precisions, spans, scores)
            if seen is None:
                whole.add(first)
            elif seen is not _MOVED:
                needed[first] = union([needed[first], seen]) if first in needed else seen
    return {first: span for first, span in needed.items() if first not in whole}


def _masks(
    summary: GraphSummary, precisions: Precisions, spans: Mapping[str, Range], hidden: Mapping[str, Range]
) -> dict[str, Range]:
    """What matters of the masks that are added to scores, inputs of the model too: a sum below the end of the scores'
    range becomes that end, so a mask need not lie further below it than the largest of what it is added to.
    """
    classes, operators = precisions.classes, {node.name: node.op_type for node in summary.nodes}
    readers = summary.reader_groups()
    found: dict[str, Range] = {}
    for first, span in spans.items():
        adds = readers.get(first, ())
        alone = len(classes.members[first]) == 1 and first not in summary.outputs
        fits = [
            hidden[classes.of[group.outputs[0]]].low - spans[classes.of[other]].high
            for group in adds
            for other in group.inputs
            if other != first and other in classes.of and classes.of.get(group.outputs[0]) in hidden
            if {operators[name] for name in group.nodes} == {"Add"}
        ]
        if alone and adds and len(fits) == len(adds) and span.low < min(fits):
            found[first] = Range(low=min(fits), high=FARTHEST)
    return found


_MOVED = Range(low=0.0, high=0.0)  # a movement inside the class: those behind it answer


def _told_apart(
    group: FusionGroup, first: str, precisions: Precisions, spans: Mapping[str, Range], scores: Mapping[str, float]
) -> Range | None:
    """What ``group`` can tell apart of its input; None for all of it."""
    target = precisions.classes.of.get(group.outputs[0])
    if target == first:
        return _MOVED
    masked = group.kind == "softmax" and first in scores
    if not (masked or group.kind == "table") or group.outputs[0] not in precisions.dtypes or target is None:
        return None
    steps = UINT8_LEVELS if precisions.dtypes[group.outputs[0]] == "uint8" else INT16_LEVELS
    step = (spans[target].high - spans[target].low) / steps
    if masked:
        return Range(low=min(scores[first] - reach_below(step), 0.0), high=FARTHEST)
    return useful_range(group.function, step)
