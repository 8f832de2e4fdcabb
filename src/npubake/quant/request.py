"""quant: what a recipe asks of ``calibrate``, read once from the stage's JSON parameters. Data; no onnx."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from npubake.errors import BuildError, Fault, RecipeError
from npubake.graph.bit_policy import override_paths, with_bit_policy
from npubake.quant.lanes import Lane, parse_lane
from npubake.quant.parameters import OutputPrecision, Precision, WeightType
from npubake.quant.precisions import Asked
from npubake.quant.ranges import Range
from npubake.quant.thresholds import METHODS, MethodName, Threshold
from npubake.quant.weight_formats import BITS, Granularity, WeightFormat

if TYPE_CHECKING:
    from npubake.quant.loading import LoadedScales

# Where quantisers stand: where the integer kernels round, or on every result of an integer group.
QUANTISERS = ("kernels", "everywhere")
BiasCorrection = Literal["none", "analytic", "empirical"]
WEIGHT_BITS = tuple(BITS)
TUNED_STEPS = ("search_weight_scale", "hessian", "bias_correction", "mod")  # carried out by ``tune``
STEPS = ("equivalent_transformation", *TUNED_STEPS)

# Of a ``set`` or a block: key -> the words that are accepted.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "activation": get_args(Precision),
    "output": get_args(OutputPrecision),
    "weights": get_args(WeightType),
    "granularity": get_args(Granularity),
    "method": METHODS,
    "bias_correction": get_args(BiasCorrection),
}
# Of the block ``weights``: key -> the field of ``Request`` that it sets.
_OF_WEIGHTS = {
    "bits": "weight_bits",
    "granularity": "granularity",
    "group_size": "group_size",
    "symmetric": "symmetric_weights",
}
_SWITCHES = ("asymmetric", "symmetric", "fuse", "equivalent_transformation", "search_weight_scale", "hessian", "mod")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one ``set`` of a layer override changes; None leaves a choice as it is. The steps (``STEPS``) are read by
    ``transform`` and ``tune``, all else by ``calibrate``.
    """

    activation: Precision | None = None
    output: OutputPrecision | None = None
    fuse: bool | None = None
    weights: WeightType | None = None
    granularity: Granularity | None = None
    group_size: int | None = None
    method: str | None = None
    percentile: float | None = None
    asymmetric: bool | None = None
    equivalent_transformation: bool | None = None
    search_weight_scale: bool | None = None
    hessian: bool | None = None
    bias_correction: BiasCorrection | None = None
    mod: bool | None = None

    def applied(self, threshold: Threshold) -> Threshold:
        """``threshold`` with the choices that are made here."""
        return Threshold(
            method=_known_method(self.method) if self.method is not None else threshold.method,
            percentile=self.percentile if self.percentile is not None else threshold.percentile,
            asymmetric=self.asymmetric if self.asymmetric is not None else threshold.asymmetric,
        )

    def applied_to_weights(self, held: WeightFormat) -> WeightFormat:
        """``held`` with the choices that are made here."""
        return replace(
            held,
            dtype=self.weights if self.weights is not None else held.dtype,
            granularity=self.granularity if self.granularity is not None else held.granularity,
            group_size=self.group_size if self.group_size is not None else held.group_size,
        )

    @property
    def changes_threshold(self) -> bool:
        return self.method is not None or self.percentile is not None or self.asymmetric is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All parameters of ``calibrate``. overrides: the bit policy as overrides, then the recipe's entries as they stand
    (for matching); settings: their ``set`` parts, in the same order; input_ranges: declared ranges of graph inputs,
    taken verbatim. weight_bits: None is the lane's; group_size: input channels that share a scale, read with
    granularity per_group alone; loaded: scales of an earlier build.
    """

    lane: Lane
    threshold: Threshold = field(default_factory=Threshold)
    granularity: Granularity = "per_channel"
    weight_bits: int | None = None
    group_size: int = 32
    symmetric_weights: bool = True
    overrides: Sequence[Mapping[str, Any]] = ()
    settings: tuple[Settings, ...] = ()
    input_ranges: Mapping[str, Range] = field(default_factory=dict)
    loaded: LoadedScales | None = None

    @property
    def weight_format(self) -> WeightFormat:
        """What the lane and ``weights`` ask of every weighted group."""
        return WeightFormat(
            dtype=self.lane.weights if self.weight_bits is None else BITS[self.weight_bits],
            granularity=self.granularity,
            group_size=self.group_size,
            symmetric=self.symmetric_weights,
        )


def parse_request(params: Mapping[str, Any]) -> Request:
    """Read the stage's parameters; raises one RecipeError with every fault."""
    faults: list[Fault] = []
    lane: Lane | None = None
    try:
        lane = parse_lane(params["lane"])
    except BuildError as error:
        faults += error.faults
    calibration, weights = dict(params.get("calibration", {})), params.get("weights", {})
    faults += _granularity_faults(calibration.pop("granularity", "per_tensor"))
    faults += _faults(calibration, "$.calibration", ("method", "percentile", "asymmetric"))
    faults += _faults(weights, "$.weights", tuple(_OF_WEIGHTS))
    quantisers = params.get("quantisers", QUANTISERS[0])
    if quantisers not in QUANTISERS:
        hint = f"one of {', '.join(QUANTISERS)}"
        faults.append(Fault(what=f"{quantisers!r} is not accepted", path="$.quantisers", hint=hint))
    overrides = with_bit_policy(params.get("bits", {}), params.get("layer_overrides", ()))
    for place, entry in zip(override_paths(overrides), overrides, strict=True):
        faults += _faults(entry.get("set", {}), f"$.{place}.set", tuple(Settings.__slots__))
    ranges, range_faults = _input_ranges(params.get("input_ranges", {}))
    faults += range_faults
    if faults or lane is None:
        raise RecipeError(*faults)
    return Request(
        lane=replace(lane, everywhere=quantisers == "everywhere"),
        threshold=Settings(**calibration).applied(Threshold()),
        overrides=overrides,
        settings=tuple(Settings(**entry.get("set", {})) for entry in overrides),
        input_ranges=ranges,
        **{_OF_WEIGHTS[key]: value for key, value in weights.items()},
    )


def asked(request: Request, matched: Sequence[tuple[str, ...]]) -> list[Asked]:
    """What each override asks of the groups that it matched. matched: names of groups, one entry an override."""
    return [
        Asked.of(path, groups, entry.get("set", {}))
        for path, entry, groups in zip(override_paths(request.overrides), request.overrides, matched, strict=True)
    ]


def _known_method(name: str) -> MethodName:
    return METHODS[METHODS.index(name)]


def _granularity_faults(asked: object) -> list[Fault]:
    """One scale a tensor is all that the integer kernels compute with, whatever a platform takes."""
    if asked == "per_tensor":
        return []
    hint = "per_tensor, or an int16 override of the layers whose channels differ"
    return [Fault(what=f"activations {asked} have no integer kernel", path="$.calibration.granularity", hint=hint)]


def _faults(values: Mapping[str, Any], path: str, keys: tuple[str, ...]) -> list[Fault]:
    """Faults of one mapping of choices: unknown keys and values outside the accepted ones."""
    faults = []
    for key, value in values.items():
        where = f"{path}.{key}"
        if key not in keys:
            faults.append(Fault(what=f"{key!r} is no choice here", path=where, hint=f"one of {', '.join(keys)}"))
        elif key in _WORDS and value not in _WORDS[key]:
            hint = f"one of {', '.join(_WORDS[key])}"
            faults.append(Fault(what=f"{value!r} is not accepted", path=where, hint=hint))
        elif key == "percentile" and not (_is_number(value) and 0.5 <= value <= 1.0):
            faults.append(Fault(what=f"{value!r} is no percentile", path=where, hint="a fraction from 0.5 to 1"))
        elif key == "bits" and (isinstance(value, bool) or value not in WEIGHT_BITS):
            faults.append(Fault(what=f"{value!r} is no width of weights", path=where, hint="4, 8 or 16"))
        elif key == "group_size" and not (type(value) is int and value >= 2):
            faults.append(Fault(what=f"{value!r} is no group size", path=where, hint="a whole number, at least 2"))
        elif key in _SWITCHES and not isinstance(value, bool):
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
