"""quant: what statistics alone show to be wrong with a quantisation, each with the recipe lines that would mend it.

In: a summary, statistics, and what the recipe asks (``request``, its overrides matched). Out: findings in graph order.
A finding goes away once its lines stand in the recipe. The recipe's text is written here as YAML; names in it are
patterns (``graph.resolve``), so that their ``*``, ``?`` and ``[`` are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from npubake.calibration.statistics import TensorStatistics
from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary
from npubake.quant.half_precision import beyond_float16
from npubake.quant.lanes import has_integer_kernel
from npubake.quant.masked_scores import lowest_unmasked
from npubake.quant.mixed_concats import mixed_concats
from npubake.quant.precisions import Precisions, decide_precisions
from npubake.quant.ranges import Range, including_zero
from npubake.quant.request import Request, asked
from npubake.quant.sharing import SHARING_KINDS
from npubake.quant.tensor_ranges import barely_used, fixed_range, lowest_scores, tensor_thresholds
from npubake.quant.thresholds import measured_range
from npubake.quant.what_if import Forecast, eight_bit_sqnr

OUTLIER_CHANNEL = 16.0  # times the median channel: such a channel leaves the others 4 of 8 bits
CLIPPING_GAIN_DB = 3.0  # SQNR that least squared error gains over minmax where a few values are far out
_SHOWN_CHANNELS = 5
_MASKED_UNSEEN = "calibrate leaves the masked ones out of the range unasked, since no Softmax can tell them apart"
_MASKED_SEEN = "a range that holds both leaves the others no step, in 16 bits either"
RULES: Mapping[str, str] = {
    "float16_overflow": "values above 65504, none above 6.1e-05, or divisors that round to zero, in a float16 layer",
    "dead_tensor": "a tensor in which nothing but zero was seen",
    "dead_channels": "channels of a weighted layer in which nothing but zero was seen",
    "mixed_concat": "large values beside small ones in one scale of 8 bits (boxes beside scores)",
    "outlier_channels": "channels whose range is far above that of the others, in one scale of 8 bits",
    "outlier_values": "a few values that set the scale of 8 bits for all",
    "costly_method": "values that the method leaves out and that cost more than they save",
    "masked_values": "masks of -1e4 or -3.4e38 beside what they are added to, in one scale",
    "unused_range": "a range fixed by mathematics of which hardly anything was seen",
}
_NOTES = ("dead_channels", "mixed_concat")  # masked_values is one where calibrate sees to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """rule: a name of RULES; severity: ``note`` where nothing is lost by it, or ``calibrate`` sees to it unasked;
    tensor: where; layer: the fusion group that makes it ('' for a graph input); what: one sentence; recipe: the lines
    that would mend it, as YAML of a recipe.
    """

    rule: str
    severity: Literal["warning", "note"]
    tensor: str
    layer: str
    what: str
    recipe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What the rules look at. samples: examples observed; matched: group names of each override of ``request``; held:
    examples that the calibration data hold, None where that is not known.
    """

    summary: GraphSummary
    statistics: Mapping[str, TensorStatistics]
    samples: int
    request: Request
    matched: Sequence[tuple[str, ...]]
    forecasts: Sequence[Forecast]
    held: int | None = None
    precisions: Precisions = field(init=False)
    makers: Mapping[str, FusionGroup] = field(init=False)

    def __post_init__(self) -> None:
        chosen = asked(self.request, self.matched)
        decided = decide_precisions(self.summary, self.request.lane, chosen, frozenset())
        object.__setattr__(self, "precisions", decided)
        object.__setattr__(self, "makers", self.summary.producer_group())

    @property
    def named(self) -> frozenset[str]:
        """Groups whose precision an override decides: who wrote it knows."""
        entries = asked(self.request, self.matched)
        return frozenset(name for entry in entries if entry.precision for name in entry.groups)

    @property
    def exhausted(self) -> bool:
        """Whether all examples that there are have been observed."""
        return self.held is not None and self.held <= self.samples

    def in_eight_bits(self, tensor: str) -> bool:
        return self.precisions.dtypes.get(tensor) == "uint8"


def findings(examined: Examined) -> tuple[Finding, ...]:
    """All of them, in graph order of their tensors; of one tensor in the order of RULES."""
    place = {name: index for index, name in enumerate(examined.summary.quantisable())}
    found = [finding for rule in _CHECKS for finding in rule(examined) if finding.tensor in place]
    return tuple(sorted(found, key=lambda finding: place[finding.tensor]))


def _float16_overflow(examined: Examined) -> Iterator[Finding]:
    groups = examined.summary.groups
    undeclared = dict.fromkeys(examined.statistics, Range(low=0.0, high=0.0))
    beyond = beyond_float16(examined.summary, examined.statistics, undeclared)
    for name in examined.statistics:
        touching = [group for group in groups if name in group.inputs or name in group.outputs]
        halves = [group for group in touching if examined.precisions.groups[group.name].precision == "float16"]
        if halves and name in beyond:
            integer = all(has_integer_kernel(examined.summary, group) for group in halves)
            lines = override_lines([group.name for group in halves], activation="int16" if integer else "float32")
            what = f"magnitudes up to {examined.statistics[name].absmax:.4g}: not all within float16 (6.1e-05 to 65504)"
            yield _finding(examined, "float16_overflow", name, what, lines)


def _dead_tensors(examined: Examined) -> Iterator[Finding]:
    for name, seen in examined.statistics.items():
        maker = examined.makers.get(name)
        dead = seen.count > 0 and including_zero(seen.minimum, seen.maximum).dead
        if dead and maker is not None and name in examined.precisions.dtypes:
            what = f"nothing but zero in {examined.samples} examples; no range can be made of it"
            readers = [group.name for group in examined.summary.reader_groups().get(name, ())]
            lines = override_lines([maker.name, *readers], activation="float32")
            yield _finding(examined, "dead_tensor", name, what, lines)


def _dead_channels(examined: Examined) -> Iterator[Finding]:
    for name, seen in examined.statistics.items():
        maker, channels = examined.makers.get(name), seen.channels
        if maker is None or maker.kind not in WEIGHTED_KINDS or channels is None:
            continue
        dead = np.flatnonzero((channels.minima == 0) & (channels.maxima == 0))
        if 0 < len(dead) < len(channels.sums):
            what = (
                f"{len(dead)} of {len(channels.sums)} channels hold nothing but zero in {examined.samples} examples "
                f"({_numbers(dead.tolist())}): more and other examples show whether they ever do"
            )
            lines = f"calibration:\n  samples: {_more_samples(examined)}"
            if examined.exhausted:
                what += f"; the calibration data hold no more than {examined.held}, so others must be added"
                lines += "  # once the data hold so many"
            yield _finding(examined, "dead_channels", name, what, lines)


def _more_samples(examined: Examined) -> int:
    """Four times as many, or all that there are."""
    wish, held = 4 * examined.samples, examined.held
    return wish if held is None or examined.exhausted else min(wish, held)


def _mixed_concats(examined: Examined) -> Iterator[Finding]:
    spans = {name: including_zero(seen.minimum, seen.maximum) for name, seen in examined.statistics.items()}
    found = mixed_concats(examined.summary, spans)
    chosen = asked(examined.request, examined.matched)
    mixed_groups = [mixed.group for mixed in found]
    kept = decide_precisions(examined.summary, examined.request.lane, chosen, frozenset(), mixed_groups).groups
    for mixed in found:
        precision = examined.precisions.groups[mixed.group].precision
        group = next(group for group in examined.summary.groups if group.name == mixed.group)
        if precision == "int8" and mixed.group not in examined.named:
            largest, least = max(mixed.absmax.values()), min(mixed.absmax.values())
            apart = kept[mixed.group].precision
            how = "gives it 16 bits" if apart == "int16" else f"joins them in {apart}, each with its own scale"
            what = (
                f"inputs up to {largest:.4g} beside inputs up to {least:.4g}, {mixed.ratio:.0f} times apart: one scale "
                f"of 8 bits would leave the small ones few levels, so calibrate {how}, unasked; the lines say the same"
            )
            yield _finding(
                examined, "mixed_concat", group.outputs[0], what, override_lines([mixed.group], activation=apart)
            )


def _outlier_channels(examined: Examined) -> Iterator[Finding]:
    for name, maker, seen in _computed_in_eight_bits(examined):
        if seen.channels is None:
            continue
        widths = np.maximum(np.abs(seen.channels.minima), np.abs(seen.channels.maxima)).astype(np.float64)
        live = widths[widths > 0]
        middle = float(np.median(live)) if live.size > 2 else 0.0
        wide = np.flatnonzero(widths > OUTLIER_CHANNEL * middle).tolist() if middle else list[int]()
        if wide:
            which = f"channels {_numbers(wide)} reach" if len(wide) > 1 else f"channel {wide[0]} reaches"
            what = (
                f"{which} {widths.max():.4g} where the median channel reaches {middle:.4g}, "
                f"{widths.max() / middle:.0f} times less"
            )
            yield _finding(examined, "outlier_channels", name, what, override_lines([maker.name], activation="int16"))


def _outlier_values(examined: Examined) -> Iterator[Finding]:
    thresholds = tensor_thresholds(examined.summary, examined.request, examined.matched)
    known = {forecast.tensor: forecast.eight_bits["uint8"] for forecast in examined.forecasts if not forecast.known}
    for name, maker, _ in _computed_in_eight_bits(examined):
        methods = known.get(name)
        if methods is None or thresholds[name].method != "minmax":
            continue
        gain = methods["mse"] - methods["minmax"]
        if gain >= CLIPPING_GAIN_DB:
            what = (
                f"a few values set the scale: {methods['minmax']:.1f} dB with all of them, {methods['mse']:.1f} dB "
                f"with the range of least squared error"
            )
            yield _finding(examined, "outlier_values", name, what, override_lines([maker.name], method="mse"))


def _costly_methods(examined: Examined) -> Iterator[Finding]:
    thresholds = tensor_thresholds(examined.summary, examined.request, examined.matched)
    known = {forecast.tensor for forecast in examined.forecasts if forecast.known}
    for name, maker, seen in _computed_in_eight_bits(examined):
        chosen = thresholds[name]
        if name in known or chosen.method in ("auto", "mse", "minmax"):
            continue
        kept, least = (eight_bit_sqnr(seen, entry) for entry in (chosen, replace(chosen, method="mse")))
        if least - kept >= CLIPPING_GAIN_DB:
            span = measured_range(seen, chosen)
            what = (
                f"{chosen.method} keeps {span.low:.4g} to {span.high:.4g} of {seen.minimum:.4g} to {seen.maximum:.4g}: "
                f"{kept:.1f} dB, and {least:.1f} dB with the range of least squared error"
            )
            yield _finding(examined, "costly_method", name, what, override_lines([maker.name], method="mse"))


def _masked_values(examined: Examined) -> Iterator[Finding]:
    scores = lowest_scores(examined.summary, examined.statistics, examined.request.input_ranges)
    readers = examined.summary.reader_groups()
    for name, seen in examined.statistics.items():
        if name not in examined.precisions.dtypes or name in examined.precisions.inner or seen.count < 1:
            continue
        lowest, read_by = lowest_unmasked(seen), readers.get(name, ())
        if lowest is None:
            continue
        added = bool(read_by) and all(group.kind == "add" and group.outputs[0] in scores for group in read_by)
        what = f"masked values down to {seen.minimum:.4g} beside values from {lowest:.4g} up: "
        what += _MASKED_UNSEEN if name in scores or added else _MASKED_SEEN
        makers = [examined.makers[name].name] if name in examined.makers else []
        lines = override_lines([*makers, *(group.name for group in read_by)], activation="float32")
        found = _finding(examined, "masked_values", name, what, lines)
        yield replace(found, severity="note") if name in scores or added else found


def _unused_ranges(examined: Examined) -> Iterator[Finding]:
    for name, largest in barely_used(examined.summary, examined.statistics, examined.request.input_ranges).items():
        if examined.in_eight_bits(name):
            what = (
                f"its values may reach 1, the largest in {examined.samples} examples is {largest:.3g}: 8 bits hold "
                f"either the possible range or what was seen of it"
            )
            lines = override_lines([examined.makers[name].name], activation="int16")
            yield _finding(examined, "unused_range", name, what, lines)


_CHECKS = (
    _float16_overflow,
    _dead_tensors,
    _dead_channels,
    _mixed_concats,
    _outlier_channels,
    _outlier_values,
    _costly_methods,
    _masked_values,
    _unused_ranges,
)


def _computed_in_eight_bits(examined: Examined) -> Iterator[tuple[str, FusionGroup, TensorStatistics]]:
    """Tensors of 8 bits that some layer computes (not moves), in a range that no mathematics gives."""
    for name, seen in examined.statistics.items():
        maker = examined.makers.get(name)
        if maker is None or maker.kind in SHARING_KINDS or fixed_range(maker) is not None:
            continue
        if examined.in_eight_bits(name) and name not in examined.precisions.inner and seen.count > 0:
            yield name, maker, seen


def _finding(examined: Examined, rule: str, tensor: str, what: str, recipe: str) -> Finding:
    maker = examined.makers.get(tensor)
    severity: Literal["warning", "note"] = "note" if rule in _NOTES else "warning"
    return Finding(
        rule=rule, severity=severity, tensor=tensor, layer=maker.name if maker else "", what=what, recipe=recipe
    )


def _numbers(channels: Sequence[int]) -> str:
    shown = ", ".join(map(str, channels[:_SHOWN_CHANNELS]))
    return shown if len(channels) <= _SHOWN_CHANNELS else f"{shown} and {len(channels) - _SHOWN_CHANNELS} more"


def override_lines(layers: Sequence[str], **settings: str) -> str:
    """One ``layer_overrides`` entry as YAML. layers: names of fusion groups, matched as they are."""
    names = ", ".join(json.dumps(_literal(name), ensure_ascii=False) for name in layers)
    change = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"layer_overrides:\n- match: {{names: [{names}]}}\n  set: {{{change}}}"


def _literal(name: str) -> str:
    """The fnmatch pattern that matches ``name`` alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
