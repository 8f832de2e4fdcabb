"""quant: what ``calibrate`` did, as JSON facts for the manifest and for people. Data; no onnx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from npubake.graph.summary import GraphSummary, Provenance
from npubake.quant.following import Narrowed
from npubake.quant.lanes import NO_KERNEL
from npubake.quant.left_in_float import left_in_float
from npubake.quant.mixed_concats import MixedConcat
from npubake.quant.parameters import QuantizationParameters
from npubake.quant.weight_choice import KeptWeights
from npubake.quant.weight_scales import WeightedFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One layer override. path: its place in the recipe; match, change: as written; groups: the names it matched;
    declined: groups that it matched and that have no kernel for the precision it asks.
    """

    path: str
    match: Mapping[str, Any]
    change: Mapping[str, Any]
    groups: tuple[str, ...]
    declined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """overrides: all, in order. kept_weights: groups whose weights are not in the format that was asked of them.
    dead_tensors: nothing above 2**-60 was seen, 0..1 is assumed. cut_ranges: tensors clipped where their readers cannot
    tell the difference (quant/saturation.py). float16_overflow: tensor -> groups that left float16 for it.
    mixed_concats: concats of large beside small.
    barely_used: tensor of a fixed range 0..1 -> its largest value, below 1/16, which became its range instead.
    narrowed: results that an override put in float and a movement rounds again.
    shared_scales: classes of tensors that hold one scale. weighted: bounds and limited channels of each weighted group.
    """

    overrides: tuple[Override, ...]
    kept_weights: tuple[KeptWeights, ...]
    dead_tensors: tuple[str, ...]
    cut_ranges: tuple[str, ...]
    float16_overflow: Mapping[str, tuple[str, ...]]
    mixed_concats: tuple[MixedConcat, ...]
    barely_used: Mapping[str, float]
    narrowed: tuple[Narrowed, ...]
    shared_scales: tuple[tuple[str, ...], ...]
    weighted: Mapping[str, WeightedFacts]


def record_json(
    record: CalibrationRecord,
    parameters: QuantizationParameters,
    summary: GraphSummary,
    provenance: tuple[Provenance, ...],
    *,
    everywhere: bool = False,
) -> dict[str, Any]:
    """The whole record artifact: ``provenance``, ``counts``, ``float_groups``, ``warnings`` and the record's facts.

    everywhere: of a vendor's compiler, which has kernels of its own: what ours lack does not stay in float there.
    """
    return {
        "version": 1,
        "lane": parameters.lane,
        "provenance": [asdict(entry) for entry in provenance],
        "counts": {
            "tensors": dict(sorted(Counter(entry.dtype for entry in parameters.tensors.values()).items())),
            "weights": dict(sorted(Counter(entry.dtype for entry in parameters.weights.values()).items())),
            "groups": dict(sorted(Counter(entry.precision for entry in parameters.groups.values()).items())),
            "accumulator_outputs": sum(entry.accumulator_output for entry in parameters.groups.values()),
        },
        "float_groups": [
            {"group": group.name, "kind": group.kind, "precision": entry.precision, "why": entry.why}
            for group in summary.groups
            for entry in [parameters.groups[group.name]]
            if entry.precision in ("float16", "float32") and not (everywhere and entry.why.startswith(NO_KERNEL))
        ],
        "warnings": [
            *summary.notes,
            *warnings(record),
            *(() if everywhere else left_in_float(summary, parameters.groups)),
        ],
        **asdict(record),
    }


def warnings(record: CalibrationRecord) -> list[str]:
    """One sentence for each thing that a person should look at."""
    found = [
        f"{mixed.group}: inputs differ {mixed.ratio:.0f} times in size; {_apart(mixed)}"
        for mixed in record.mixed_concats
    ]
    found += [f"{name}: dead, nothing but zero was seen; its range is taken as 0..1" for name in record.dead_tensors]
    found += [
        f"{name}: its values may reach 1, but the largest seen is {largest:.3g}, less than 1/16 of that; the range is "
        f"what was seen, and larger values would be clipped"
        for name, largest in record.barely_used.items()
    ]
    found += [
        f"{name}: beyond float16 (6.1e-05 to 65504); {', '.join(groups)} left float16"
        for name, groups in record.float16_overflow.items()
    ]
    found += [
        f"{entry.group}: its weights are {entry.held}, not {entry.asked}: {entry.why}" for entry in record.kept_weights
    ]
    found += [
        f"{group}: weights of {len(facts.bias_channels)} channels are coarser, because their bias must fit into int32"
        for group, facts in record.weighted.items()
        if facts.bias_channels
    ]
    found += [
        f"{entry.path}: what it asks of {entry.group} is rounded to {entry.dtype} again by {entry.reader}, and no "
        f"integer layer computes with it; ask the same of {entry.reader}"
        for entry in record.narrowed
    ]
    found += [
        f"{override.path}: {', '.join(override.declined)} have no kernel for it and keep what they had"
        for override in record.overrides
        if override.declined
    ]
    return found


def _apart(mixed: MixedConcat) -> str:
    """What became of a concat of large beside small."""
    if mixed.precision == "int8":
        return "in one scale of 8 bits the small ones keep few levels"
    if mixed.precision == "int16":
        return "they share a scale of 16 bits"
    return f"they are joined in {mixed.precision}, so that each keeps its own scale"
