"""Room ``graph``: the equivalent transformations that a recipe asks for, in order. Model and ranges in, model out.

Order: channels of layers in a row, channels behind normalisations, biases; each works on what the one before made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx

from npubake.errors import Fault, RecipeError
from npubake.graph.passes.outcome import Declined
from npubake.graph.provenance import compose, identity
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary, Provenance
from npubake.graph.transforms.absorb_bias import Absorbed, absorb_bias
from npubake.graph.transforms.equalize import Scaled, Scaling, equalize
from npubake.graph.transforms.prediction import Levels
from npubake.graph.transforms.ranges import ChannelRange

SWITCH = "equivalent_transformation"
_WIDE = 65535  # levels of a 16 bit activation


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is asked. smoothing: SmoothQuant's alpha, None for no smoothing; activation_bits: of the lane."""

    cross_layer_equalization: bool = True
    smoothing: float | None = 0.5
    bias_absorption: bool = False
    activation_bits: int = 8

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> Settings:
        """From the stage's parameters. Raises RecipeError where alpha is no share or the bits are not 8 or 16."""
        plain = cls()
        alpha, bits = params.get("smoothing", plain.smoothing), params.get("activation_bits", plain.activation_bits)
        share: Any = plain.smoothing if alpha is True else alpha
        faults = []
        if share is not False and (not isinstance(share, int | float) or not 0.0 <= share <= 1.0):
            path = "$.quant_config.equivalent_transformation.smoothing"
            faults.append(Fault(what=f"{alpha!r} is no share", path=path, hint="a number from 0 to 1, or false"))
        if bits not in (8, 16):
            faults.append(Fault(what=f"activations of {bits!r} bits", path="$.activation_bits", hint="8 or 16"))
        if faults:
            raise RecipeError(*faults)
        return cls(
            cross_layer_equalization=bool(params.get("cross_layer_equalization", plain.cross_layer_equalization)),
            smoothing=None if share is False else float(share),
            bias_absorption=bool(params.get("bias_absorption", plain.bias_absorption)),
            activation_bits=bits,
        )

    @property
    def levels(self) -> Levels:
        return Levels() if self.activation_bits == 8 else Levels(activation=_WIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """The new model and what was done. provenance: of every computed tensor of the model that was given."""

    model: onnx.ModelProto
    provenance: tuple[Provenance, ...]
    scaled: tuple[Scaled, ...] = ()
    absorbed: tuple[Absorbed, ...] = ()
    declined: Mapping[str, tuple[Declined, ...]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """False where nothing was found to gain: the model is the one that was given."""
        return bool(self.scaled or self.absorbed)

    def to_json(self) -> dict[str, Any]:
        """The record: JSON values."""
        return {
            "provenance": [asdict(entry) for entry in self.provenance],
            "scaled": [asdict(entry) for entry in self.scaled],
            "absorbed": [asdict(entry) for entry in self.absorbed],
            "declined": {step: [asdict(entry) for entry in entries] for step, entries in self.declined.items()},
        }


def transform(
    model: onnx.ModelProto,
    observed: Mapping[str, ChannelRange],
    settings: Settings,
    excluded: AbstractSet[str] = frozenset(),
) -> Transformed:
    """``model`` (optimised) after all steps that ``settings`` asks for; ``excluded``: nodes that stay as they are.

    Functions get a Mul only for 8 bits: it costs an operation, and 16 bits have room for unlike channels.
    Raises StageError where a constant would leave float32's range.
    """
    steps: list[tuple[str, Scaling]] = []
    if settings.cross_layer_equalization:
        narrow = settings.activation_bits == 8
        cross = Scaling(writers={"weighted", "function"} if narrow else {"weighted"}, levels=settings.levels)
        steps.append(("cross_layer_equalization", cross))
    if settings.smoothing is not None:
        smooth = Scaling(writers={"norm"}, alphas=(settings.smoothing,), gain=0.0, levels=settings.levels)
        steps.append(("smoothing", smooth))
    provenance = identity(model)
    scaled: tuple[Scaled, ...] = ()
    absorbed: tuple[Absorbed, ...] = ()
    declined: dict[str, tuple[Declined, ...]] = {}
    for name, scaling in steps:
        made = equalize(model, observed, scaling, excluded)
        provenance = compose(provenance, made.provenance, made.model)
        model, observed = made.model, made.observed
        scaled, declined[name] = (*scaled, *made.scaled), made.declined
    if settings.bias_absorption:
        moved = absorb_bias(model, observed, excluded)
        provenance = compose(provenance, moved.provenance, moved.model)
        model, absorbed, declined["bias_absorption"] = moved.model, moved.absorbed, moved.declined
    return Transformed(model=model, provenance=provenance, scaled=scaled, absorbed=absorbed, declined=declined)


def excluded_nodes(summary: GraphSummary, overrides: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Nodes of the groups that layer overrides keep out of transformations; the later override wins.

    Raises RecipeError where an override matches nothing.
    """
    groups = {group.name: group.nodes for group in summary.groups}
    kept: dict[str, bool] = {}
    for entry in resolve_overrides(summary, overrides):
        asked = overrides[entry.index].get("set", {}).get(SWITCH)
        if asked is not None:
            kept.update(dict.fromkeys(entry.groups, not asked))
    return frozenset(node for name, out in kept.items() if out for node in groups[name])
