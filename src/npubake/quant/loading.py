"""quant: ranges and scales of an earlier build, taken over by tensor name. Parameters in, ranges and differences out.

A scale is made of a range whose ends have ten mantissa bits (quant/ranges.py), so that every machine makes the same
one. What an earlier build of the same model made is taken as it is; any other scale moves to that grid, and each move
is told.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from npubake.errors import Fault, RecipeError, StageError
from npubake.graph.summary import GraphSummary
from npubake.quant.affine import tensor_parameters
from npubake.quant.parameters import LIMITS, QuantizationParameters, TensorParameters, WeightParameters
from npubake.quant.precisions import Asked
from npubake.quant.ranges import Range, snapped
from npubake.quant.thresholds import Threshold

DECIDED = "quant_config.load.scales"
PLACE = f"$.{DECIDED}"
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedScales:
    """tensors, weights, lane: of the earlier build; missing: what becomes of tensors that are not among them."""

    tensors: Mapping[str, TensorParameters]
    weights: Mapping[str, WeightParameters]
    lane: str = ""
    missing: Literal["refuse", "calibrate"] = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedScale:
    """One tensor, or the weights of one group, whose scale is not the loaded one. before, after: what they hold."""

    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    why: str


def read_scales(path: Path, missing: Literal["refuse", "calibrate"]) -> LoadedScales:
    """The scales of a parameters file. Raises RecipeError where it is none, or holds a scale that is no scale."""
    hint = "name the parameters of a build: build/TARGET/TARGET_parameters.json"
    try:
        read = QuantizationParameters.load(path)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecipeError(Fault(what=f"no parameters of a build: {error!r}", path=PLACE, hint=hint)) from error
    faults = [
        Fault(what=f"{name}: {entry.dtype}, scale {entry.scale}, zero point {entry.zero_point}", path=PLACE, hint=hint)
        for name, entry in read.tensors.items()
        if entry.dtype not in ("uint8", "int16") or not _is_scale(entry)
    ]
    if faults:
        raise RecipeError(*faults[:_SHOWN])
    return LoadedScales(tensors=read.tensors, weights=read.weights, lane=read.lane, missing=missing)


def scale_faults(path: Path, summary: GraphSummary) -> Sequence[Fault]:
    """Loaded scales that are none, or those of another model; what they lack is told where precisions are settled."""
    try:
        known = read_scales(path, "calibrate").tensors
    except RecipeError as error:
        return error.faults
    if known.keys() & summary.tensors.keys():
        return ()
    hint = f"it holds {', '.join(sorted(known)[:3])}, ...: load the parameters of a build of this model"
    return [Fault(what="the loaded scales name no tensor of this model", path=PLACE, hint=hint)]


def with_loaded_bits(
    summary: GraphSummary, lane: str, overrides: Sequence[Asked], loaded: LoadedScales | None
) -> list[Asked]:
    """What is asked of groups: first the 16 bits that the earlier build gave what they make, where it was of the same
    ``lane`` (``tune`` may have lifted them), then the overrides. A group whose precision one of these states has no
    bits of the earlier build.
    """
    if loaded is None or loaded.lane != lane:
        return list(overrides)
    said = {name for entry in overrides if entry.precision is not None or entry.output for name in entry.groups}
    wide = {name for name, entry in loaded.tensors.items() if entry.dtype == "int16"}
    groups = tuple(
        group.name for group in summary.groups if group.name not in said and wide.intersection(group.outputs)
    )
    return [Asked(path=DECIDED, groups=groups, output="int16"), *overrides]


def loaded_range(entry: TensorParameters) -> tuple[Range, bool]:
    """(range, asymmetric) that give the entry's scale and zero point: its own where they do, else the range that its
    integers span, snapped outward.
    """
    if entry.low <= 0.0 <= entry.high and entry.low < entry.high:
        own = Range(low=entry.low, high=entry.high)
        for asymmetric in (True, False):
            if own == snapped(own) and _equal(tensor_parameters(own, entry.dtype, asymmetric=asymmetric), entry):
                return own, asymmetric
    low, high = LIMITS[entry.dtype]
    asymmetric = entry.dtype == "uint8" and entry.zero_point != 128
    spanned = Range(low=(low - entry.zero_point) * entry.scale, high=(high - entry.zero_point) * entry.scale)
    return snapped(spanned), asymmetric


def overlaid(
    ranges: Mapping[str, Range], thresholds: Mapping[str, Threshold], loaded: LoadedScales | None
) -> tuple[dict[str, Range], dict[str, Threshold]]:
    """Ranges, and whether they are asymmetric, with the loaded ones in place of those chosen here."""
    spans, chosen = dict(ranges), dict(thresholds)
    for name, entry in loaded.tensors.items() if loaded is not None else ():
        if name in spans:
            spans[name], asymmetric = loaded_range(entry)
            chosen[name] = replace(chosen[name], asymmetric=asymmetric)
    return spans, chosen


def require_all(held: Collection[str], loaded: LoadedScales | None) -> None:
    """Raises StageError with the tensors in ``held`` that the file does not name, unless they may be calibrated."""
    if loaded is None or loaded.missing == "calibrate":
        return
    absent = [name for name in held if name not in loaded.tensors]
    if absent:
        more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
        what = f"the loaded scales name no {', '.join(map(repr, absent[:_SHOWN]))}{more}"
        hint = "load the scales of this model and lane, or say 'missing: calibrate'"
        raise StageError(Fault(what=what, path=PLACE, hint=hint))


def moved_scales(
    tensors: Mapping[str, TensorParameters],
    weights: Mapping[str, WeightParameters],
    loaded: LoadedScales,
) -> tuple[MovedScale, ...]:
    """Every scale that differs from the loaded one, and why."""
    moved = []
    for name, made in tensors.items():
        entry = loaded.tensors.get(name)
        if entry is not None and (made.dtype != entry.dtype or not _equal(made, entry)):
            moved.append(MovedScale(name=name, before=_shown(entry), after=_shown(made), why=_why(made, entry)))
    for name, operand in weights.items():
        kept = loaded.weights.get(name)
        if kept is not None and (kept.dtype, kept.scales) != (operand.dtype, operand.scales):
            count = len(set(zip(kept.scales, operand.scales, strict=False)))
            why = "its tensors' scales moved, its weights differ, or they were searched"
            moved.append(
                MovedScale(
                    name=name,
                    before={"dtype": kept.dtype, "scales": len(kept.scales)},
                    after={"dtype": operand.dtype, "scales": len(operand.scales), "differ": count},
                    why=why,
                )
            )
    return tuple(moved)


def moved_warnings(moved: Collection[MovedScale]) -> list[str]:
    """A sentence for each of the first, and how many more there are."""
    told = [
        f"loaded scales: {entry.name}: {json.dumps(entry.before)} became {json.dumps(entry.after)}: {entry.why}"
        for entry in list(moved)[:_SHOWN]
    ]
    return told + ([f"loaded scales: {len(moved) - _SHOWN} more moved, see the record"] if len(moved) > _SHOWN else [])


def loaded_facts(loaded: LoadedScales, made: QuantizationParameters, warnings: Collection[str]) -> dict[str, Any]:
    """What became of loaded scales, for the record: how many are used, and those that had to move, which are warnings
    beside ``warnings``.
    """
    moved = moved_scales(made.tensors, made.weights, loaded)
    facts = {
        "tensors": len(loaded.tensors.keys() & made.tensors.keys()),
        "moved": [asdict(entry) for entry in moved],
    }
    return {"warnings": [*warnings, *moved_warnings(moved)], "loaded_scales": facts}


def _is_scale(entry: TensorParameters) -> bool:
    low, high = LIMITS[entry.dtype]
    whole = entry.zero_point == 0 if entry.dtype == "int16" else low <= entry.zero_point <= high
    return whole and 0.0 < entry.scale < float("inf")


def _equal(made: TensorParameters, entry: TensorParameters) -> bool:
    return (made.scale, made.zero_point) == (entry.scale, entry.zero_point)


def _shown(entry: TensorParameters) -> dict[str, Any]:
    return {"dtype": entry.dtype, "scale": entry.scale, "zero_point": entry.zero_point}


def _why(made: TensorParameters, entry: TensorParameters) -> str:
    if made.dtype != entry.dtype:
        return f"it is held as {made.dtype} here"
    own, asymmetric = loaded_range(entry)
    if not _equal(tensor_parameters(own, entry.dtype, asymmetric=asymmetric), entry):
        return "it lies on no range whose ends have ten mantissa bits"
    return "it shares its scale with other tensors, or is clipped where no reader can tell"
