"""Recipe room: how a model is quantised, as frozen data: quant_config and layer_overrides. No I/O.

The defaults of this module and those of schemas/recipe.schema.json are the same: a test compares them. None is what the
recipe does not say; False of a step forbids it even where ``tuning`` would try it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

Lane = Literal["platform", "a8w8", "a16w8", "a16w16", "w4a16", "fp16", "fp16_a8w8"]
Method = Literal["auto", "minmax", "percentile", "entropy", "mse", "mean_minmax"]
Granularity = Literal["per_tensor", "per_channel", "per_group"]
ActivationGranularity = Literal["per_tensor", "per_channel"]
Precision = Literal["int8", "int16", "float16", "float32"]
OutputPrecision = Literal["int8", "int16"]
WeightType = Literal["int4", "int8", "int16"]
Role = Literal["first_layer", "last_layer", "norm_adjacent", "query", "key", "value", "attention_output", "ffn", "head"]
BiasCorrection = Literal["none", "analytic", "empirical"]
Learnable = Literal["activation_scale", "zero_point", "weight_scale", "rounding"]
Level = Literal["none", "default", "best"]

LANE_SPELLINGS: Mapping[str, Lane] = {
    "platform": "platform",
    "a8w8": "a8w8",
    "w8a8": "a8w8",
    "a16w8": "a16w8",
    "w8a16": "a16w8",
    "a16w16": "a16w16",
    "w16a16": "a16w16",
    "w4a16": "w4a16",
    "a16w4": "w4a16",
    "fp16": "fp16",
    "fp16_a8w8": "fp16_a8w8",
    "fp16_w8a8": "fp16_a8w8",
}
# Lane -> bits of activations and of weights where it computes in integers; tests hold it to quant/lanes.py.
INTEGER_BITS: Mapping[str, tuple[int, int]] = {
    "a8w8": (8, 8),
    "a16w8": (16, 8),
    "a16w16": (16, 16),
    "w4a16": (16, 4),
    "fp16_a8w8": (8, 8),
}
TUNED_STEPS = ("search_weight_scale", "hessian", "bias_correction", "mod")  # carried out by ``tune``
STEPS = ("equivalent_transformation", *TUNED_STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeChoice:
    """How activation ranges are chosen. percentile: the quantile covered, read by method percentile alone."""

    method: Method = "auto"
    percentile: float = 0.9999
    asymmetric: bool = True
    granularity: ActivationGranularity = "per_tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChoice:
    """How weights are quantised. bits: None is the lane's; group_size: input channels, read by per_group alone."""

    bits: Literal[4, 8, 16] | None = None
    granularity: Granularity = "per_channel"
    group_size: int = 32
    symmetric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BitPolicy:
    """Precision of activations by operator type and by role."""

    op_types: Mapping[str, Precision] = field(default_factory=dict)
    roles: Mapping[Role, Precision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalentTransformation:
    """Changes that leave the float function as it is. smoothing: SmoothQuant's alpha, 0 to 1; False leaves it out."""

    cross_layer_equalization: bool = True
    smoothing: float | Literal[False] = 0.5
    bias_absorption: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSearch:
    """candidates: weight scales that are tried of each channel."""

    candidates: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Hessian:
    """GPTQ-like rounding. damping: share of the mean diagonal; positions: taken of each example."""

    block_size: int = 128
    damping: float = 0.1
    act_order: bool = True
    positions: int = 256
    asymmetric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Mod:
    """Minimize Output Difference. layers: name patterns, () for every layer with weights; learn: () for rounding."""

    layers: tuple[str, ...] = ()
    epochs: int = 50
    learning_rate: float = 0.3
    schedule: Literal["constant", "cosine"] = "cosine"
    loss: Literal["mse"] = "mse"
    learn: tuple[Learnable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Steps tried by themselves. held_out: share of the calibration set that judges; max_int16: None is the level's."""

    level: Level = "default"
    judge: bool = True
    held_out: float = 0.25
    max_int16: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Something that an earlier build made: a file, and its sha256 where the recipe says it; without a file, what the
    store holds under the digest.
    """

    path: Path | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is used again. missing: what becomes of tensors that the loaded scales do not name."""

    samples: Stored | None = None
    scales: Stored | None = None
    missing: Literal["refuse", "calibrate"] = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantConfig:
    """lane: canonical spelling; ``platform`` until a target decides it."""

    lane: Lane = "platform"
    calibration: RangeChoice = field(default_factory=RangeChoice)
    weights: WeightChoice = field(default_factory=WeightChoice)
    bits: BitPolicy = field(default_factory=BitPolicy)
    equivalent_transformation: EquivalentTransformation | Literal[False] | None = None
    search_weight_scale: ScaleSearch | Literal[False] | None = None
    hessian: Hessian | Literal[False] | None = None
    bias_correction: BiasCorrection | None = None
    mod: Mod | None = None
    tuning: Tuning = field(default_factory=Tuning)
    save_sample: bool = False
    load: Load | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """Layers on a path from one of the tensors ``start`` to one of ``end``; (): the model's inputs, its outputs."""

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMatch:
    """Which layers: every stated condition must hold. names, patterns: one list, with * and ?; op_types: of ONNX."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    subgraph: Subgraph | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSettings:
    """What is set for the matched layers; None leaves quant_config's choice."""

    activation: Precision | None = None
    output: OutputPrecision | None = None
    weights: WeightType | None = None
    granularity: Granularity | None = None
    group_size: int | None = None
    method: Method | None = None
    percentile: float | None = None
    asymmetric: bool | None = None
    equivalent_transformation: bool | None = None
    search_weight_scale: bool | None = None
    hessian: bool | None = None
    bias_correction: BiasCorrection | None = None
    mod: bool | None = None
    fuse: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOverride:
    match: LayerMatch
    set: LayerSettings

    def as_params(self) -> dict[str, Any]:
        """The form of the stages' parameter ``layer_overrides``: ``{match, set}`` with what is not stated left out."""
        match: dict[str, Any] = {
            name: list(getattr(self.match, name)) for name in ("names", "patterns", "op_types", "roles")
        }
        if self.match.subgraph is not None:
            ends = {"from": list(self.match.subgraph.start), "to": list(self.match.subgraph.end)}
            match["subgraph"] = {name: tensors for name, tensors in ends.items() if tensors}
        return {
            "match": {name: value for name, value in match.items() if value},
            "set": {name: value for name, value in asdict(self.set).items() if value is not None},
        }


def differences(block: Any) -> dict[str, Any]:
    """The fields of one of this module's dataclasses that are not at their default, as JSON."""
    default = type(block)()
    pairs = {entry.name: getattr(block, entry.name) for entry in fields(block)}
    return {
        name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        for name, value in pairs.items()
        if value != getattr(default, name)
    }
