"""quant: what lane, policy and overrides come to for each layer, before anything is observed. A summary and the stages'
parameters in, plain data out; no onnx.

What statistics alone can tell is not here: tensors beyond float16, and steps of ``tune`` that were judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npubake.graph.bit_policy import override_paths
from npubake.graph.resolve import resolve_overrides
from npubake.graph.roles import roles_of
from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.loading import DECIDED, LoadedScales, with_loaded_bits
from npubake.quant.parameters import OUTPUT_TYPES
from npubake.quant.precisions import Asked, Precisions, decide_precisions
from npubake.quant.request import STEPS, Request, Settings, asked, parse_request
from npubake.quant.tensor_ranges import fixed_range, tensor_thresholds
from npubake.quant.weight_choice import WeightFormats, input_channels, weight_formats
from npubake.quant.weight_formats import WeightFormat

_DEFAULT, _OF_WEIGHTS = "default", "quant_config.weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of one layer. why: who decided: a place in the recipe, the lane, or ``default``."""

    value: str | int | float | bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLayer:
    """One fusion group. settings: by the names of the recipe's keys, those alone that mean something for it."""

    group: str
    kind: str
    op_types: tuple[str, ...]
    roles: tuple[str, ...]
    settings: Mapping[str, Setting]


def resolved_layers(
    summary: GraphSummary, params: Mapping[str, Any], loaded: LoadedScales | None = None
) -> tuple[ResolvedLayer, ...]:
    """Every fusion group in order. params: those of ``tune``, and ``equivalent_transformation`` where it is stated;
    loaded: the scales that are taken over.

    Raises RecipeError: a value that is not accepted, or a selector that selects nothing.
    """
    request = parse_request(params)
    matched = tuple(entry.groups for entry in resolve_overrides(summary, request.overrides))
    formats = weight_formats(summary, request, matched)
    wanted = with_loaded_bits(summary, request.lane.name, asked(request, matched), loaded)
    precisions = decide_precisions(summary, request.lane, wanted, frozenset(), formats=formats.by_group)
    thresholds = tensor_thresholds(summary, request, matched)
    types = {node.name: node.op_type for node in summary.nodes}
    roles = roles_of(summary)
    makers = summary.producer_group()
    learned = layers_to_learn(summary, params.get("mod") or {})
    weighted = _Weighted.of(summary, formats)
    made = []
    for group in summary.groups:
        mine = _Mine.of(group.name, request, matched)
        settings = _numbers(group, precisions, wanted)
        if precisions.holds_weights(group):
            settings |= {
                **_weights(weighted[group.name], request, mine),
                **dict(_steps(params, mine, learned=group.name in learned)),
            }
        tensor = group.outputs[0] if group.outputs else ""
        if tensor in precisions.dtypes and tensor in thresholds:
            threshold = thresholds[tensor]
            chosen = {"method": threshold.method, "percentile": threshold.percentile}
            known = _known_range(tensor, makers.get(tensor), precisions, loaded)
            settings.update(known or _ranges(chosen, threshold.asymmetric, params, mine))
        made.append(
            ResolvedLayer(
                group=group.name,
                kind=group.kind,
                op_types=tuple(dict.fromkeys(types[node] for node in group.nodes)),
                roles=tuple(sorted(roles.get(group.name, ()))),
                settings=settings,
            )
        )
    return tuple(made)


# Ranges that no method chooses.
_BY_MATHEMATICS = {"method": Setting(value="fixed range", why="known by mathematics")}
_BY_BITS = {"method": Setting(value="all that was seen", why="16 bits keep it, and a margin, whatever the method")}
_BY_LOADING = {"method": Setting(value="loaded scale", why=DECIDED)}


def _known_range(
    tensor: str, maker: FusionGroup | None, precisions: Precisions, loaded: LoadedScales | None
) -> dict[str, Setting] | None:
    """Who decides the range of what a group makes, where no method does: loaded scales go before all else."""
    if loaded is not None and tensor in loaded.tensors:
        return _BY_LOADING
    if fixed_range(maker) is not None:
        return _BY_MATHEMATICS
    return _BY_BITS if precisions.dtypes[tensor] == "int16" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighted:
    """What becomes of the weights of one group. channels: that one of its outputs sums over; why: held is not what was
    asked.
    """

    held: WeightFormat
    channels: int
    why: str

    @classmethod
    def of(cls, summary: GraphSummary, formats: WeightFormats) -> dict[str, _Weighted]:
        """By group."""
        kept = {entry.group: entry.why for entry in formats.kept}
        made = {}
        for group in (group for group in summary.groups if group.name in formats.by_group):
            channels = input_channels(summary, group)
            why = kept.get(group.name, f"{channels} input channels are one group")
            made[group.name] = cls(held=formats.by_group[group.name], channels=channels, why=why)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mine:
    """The overrides that matched one group, the last first."""

    entries: tuple[tuple[str, Settings], ...]

    @classmethod
    def of(cls, name: str, request: Request, matched: Sequence[tuple[str, ...]]) -> _Mine:
        paths = override_paths(request.overrides)
        found = [
            (path, settings)
            for path, settings, groups in zip(paths, request.settings, matched, strict=True)
            if name in groups
        ]
        return cls(entries=tuple(reversed(found)))

    def last(self, key: str) -> Setting | None:
        """What the last override that says something of ``key`` says."""
        for path, settings in self.entries:
            value = getattr(settings, key)
            if value is not None:
                return Setting(value=value, why=path)
        return None


def _numbers(group: FusionGroup, precisions: Precisions, wanted: Sequence[Asked]) -> dict[str, Setting]:
    """Precision of the arithmetic, and the integer type of what is made. wanted: overrides and loaded bits."""
    entry = precisions.groups[group.name]
    settings = {"activation": Setting(value=entry.precision, why=entry.why)}
    held = [precisions.dtypes[name] for name in group.outputs if name in precisions.dtypes]
    if entry.accumulator_output:
        settings["output"] = Setting(value="int32 accumulator", why="no integer layer reads it")
    elif held and precisions.inner.issuperset(group.outputs):
        settings["output"] = Setting(value="inner int16", why="fused with the function that reads it")
    elif held:
        asking = [(one.path, OUTPUT_TYPES[one.output]) for one in wanted if one.output and group.name in one.groups]
        path, dtype = asking[-1] if asking else ("", held[0])
        settings["output"] = Setting(value=held[0], why=path if path and dtype == held[0] else entry.why)
    return settings


def _weights(group: _Weighted, request: Request, mine: _Mine) -> dict[str, Setting]:
    """The format that the build gives the weights, and who decided: whoever asked, or why it is another one."""
    lane = f"lane {request.lane.name}" if request.weight_bits is None else _OF_WEIGHTS
    plain = request.granularity == Request(lane=request.lane).granularity
    asked = {
        "weights": mine.last("weights") or Setting(value=request.weight_format.dtype, why=lane),
        "granularity": mine.last("granularity")
        or Setting(value=request.granularity, why=_DEFAULT if plain else _OF_WEIGHTS),
    }
    held = {"weights": group.held.dtype, "granularity": group.held.granularity}
    if held["granularity"] == "per_group" and 0 < group.channels <= group.held.group_size:
        held["granularity"] = "per_channel"
    settings = {
        name: stated if stated.value == held[name] else Setting(value=held[name], why=group.why)
        for name, stated in asked.items()
    }
    if held["granularity"] == "per_group":
        size = Setting(value=request.group_size, why=_OF_WEIGHTS)
        settings["group_size"] = mine.last("group_size") or size
    if not request.symmetric_weights:
        settings["symmetric"] = Setting(value=False, why=_OF_WEIGHTS)
    return settings


def _ranges(
    chosen: Mapping[str, str | float], asymmetric: bool, params: Mapping[str, Any], mine: _Mine
) -> dict[str, Setting]:
    """How the range of what the group makes is chosen."""
    stated = params.get("calibration", {})

    def setting(key: str, value: str | float | bool) -> Setting:
        whole = "quant_config.calibration" if key in stated else _DEFAULT
        found = mine.last(key)
        return Setting(value=value, why=found.why if found else whole)

    settings = {"method": setting("method", chosen["method"])}
    if chosen["method"] == "percentile":
        settings["percentile"] = setting("percentile", chosen["percentile"])
    return {**settings, "asymmetric": setting("asymmetric", asymmetric)}


def layers_to_learn(summary: GraphSummary, mod: Mapping[str, Any]) -> frozenset[str]:
    """Groups that ``mod`` names; all where it names none."""
    if "layers" not in mod:
        return frozenset(group.name for group in summary.groups)
    (found,) = resolve_overrides(summary, [{"match": {"names": mod["layers"]}, "path": "quant_config.mod.layers"}])
    return frozenset(found.groups)


def _steps(params: Mapping[str, Any], mine: _Mine, *, learned: bool) -> Iterator[tuple[str, Setting]]:
    """Steps of ``transform`` and ``tune``: asked for (true), forbidden (false), or left to the level of tuning."""
    level = params.get("tuning", {}).get("level", "default")
    for name in STEPS:
        found = mine.last(name)
        if found is None and name in params:
            stated = params[name]
            value = stated if isinstance(stated, str) else stated is not False and (name != "mod" or learned)
            found = Setting(value=value, why=f"quant_config.{name}")
        if found is None and level != "none":
            found = Setting(value=f"level {level}", why="quant_config.tuning" if "tuning" in params else _DEFAULT)
        if found is not None:
            yield name, found
