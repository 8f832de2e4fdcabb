"""quant: what a recipe asks of ``calibrate``, read once from the stage's JSON parameters. Data; no numpy, no onnx."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from npubake.errors import BuildError, Fault, RecipeError
from npubake.quant.lanes import Lane, parse_lane
from npubake.quant.parameters import OutputPrecision, Precision
from npubake.quant.ranges import Range
from npubake.quant.thresholds import METHODS, MethodName, Threshold
from npubake.quant.weights import Granularity

_PRECISIONS: tuple[str, ...] = get_args(Precision)
_OUTPUTS: tuple[str, ...] = get_args(OutputPrecision)
_GRANULARITIES: tuple[str, ...] = get_args(Granularity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one ``set`` of a layer override changes; None leaves a choice as it is."""

    activation: Precision | None = None
    output: OutputPrecision | None = None
    fuse: bool | None = None
    granularity: Granularity | None = None
    method: str | None = None
    percentile: float | None = None
    asymmetric: bool | None = None

    def applied(self, threshold: Threshold) -> Threshold:
        """``threshold`` with the choices that are made here."""
        return Threshold(
            method=_known_method(self.method) if self.method is not None else threshold.method,
            percentile=self.percentile if self.percentile is not None else threshold.percentile,
            asymmetric=self.asymmetric if self.asymmetric is not None else threshold.asymmetric,
        )

    @property
    def changes_threshold(self) -> bool:
        return self.method is not None or self.percentile is not None or self.asymmetric is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All parameters of ``calibrate``. overrides: the recipe's entries as they stand (for matching); settings: their
    ``set`` parts, in the same order; input_ranges: declared ranges of graph inputs, taken verbatim.
    """

    lane: Lane
    threshold: Threshold = field(default_factory=Threshold)
    granularity: Granularity = "per_channel"
    overrides: Sequence[Mapping[str, Any]] = ()
    settings: tuple[Settings, ...] = ()
    input_ranges: Mapping[str, Range] = field(default_factory=dict)


def parse_request(params: Mapping[str, Any]) -> Request:
    """Read the stage's parameters; raises one RecipeError with every fault."""
    faults: list[Fault] = []
    lane: Lane | None = None
    try:
        lane = parse_lane(params["lane"])
    except BuildError as error:
        faults += error.faults
    calibration, weights = params.get("calibration", {}), params.get("weights", {})
    faults += _faults(calibration, "$.calibration", ("method", "percentile", "asymmetric"))
    faults += _faults(weights, "$.weights", ("granularity",))
    overrides = tuple(params.get("layer_overrides", ()))
    for index, entry in enumerate(overrides):
        faults += _faults(entry.get("set", {}), f"$.layer_overrides[{index}].set", tuple(Settings.__slots__))
    ranges, range_faults = _input_ranges(params.get("input_ranges", {}))
    faults += range_faults
    if faults or lane is None:
        raise RecipeError(*faults)
    return Request(
        lane=lane,
        threshold=Settings(**calibration).applied(Threshold()),
        granularity=weights.get("granularity", "per_channel"),
        overrides=overrides,
        settings=tuple(Settings(**entry.get("set", {})) for entry in overrides),
        input_ranges=ranges,
    )


def _known_method(name: str) -> MethodName:
    return METHODS[METHODS.index(name)]


def _faults(values: Mapping[str, Any], path: str, keys: tuple[str, ...]) -> list[Fault]:
    """Faults of one mapping of choices: unknown keys and values outside the accepted ones."""
    accepted: dict[str, tuple[str, ...]] = {
        "activation": _PRECISIONS,
        "output": _OUTPUTS,
        "granularity": _GRANULARITIES,
        "method": METHODS,
    }
    faults = []
    for key, value in values.items():
        where = f"{path}.{key}"
        if key not in keys:
            faults.append(Fault(what=f"{key!r} is no choice here", path=where, hint=f"one of {', '.join(keys)}"))
        elif key in accepted and value not in accepted[key]:
            hint = f"one of {', '.join(accepted[key])}"
            faults.append(Fault(what=f"{value!r} is not accepted", path=where, hint=hint))
        elif key == "percentile" and not (_is_number(value) and 0.5 <= value <= 1.0):
            faults.append(Fault(what=f"{value!r} is no percentile", path=where, hint="a fraction from 0.5 to 1"))
        elif key in ("asymmetric", "fuse") and not isinstance(value, bool):
            faults.append(Fault(what=f"{value!r} is neither true nor false", path=where))
    return faults


def _input_ranges(declared: Mapping[str, Any]) -> tuple[dict[str, Range], list[Fault]]:
    ranges, faults = {}, []
    for name, ends in declared.items():
        pair = list(ends) if isinstance(ends, list | tuple) else []
        if len(pair) == 2 and all(_is_number(end) for end in pair) and pair[0] <= 0 <= pair[1] and pair[0] < pair[1]:
            ranges[name] = Range(low=float(pair[0]), high=float(pair[1]))
        else:
            hint = "two numbers, low <= 0 <= high"
            faults.append(Fault(what=f"{ends!r} is no range", path=f"$.input_ranges.{name}", hint=hint))
    return ranges, faults


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
