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
from npubake.quant.precisions import Precisions, decide_precisions
from npubake.quant.request import STEPS, Request, Settings, asked, parse_request
from npubake.quant.tensor_ranges import fixed_range, tensor_thresholds

_DEFAULT = "default"


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


def resolved_layers(summary: GraphSummary, params: Mapping[str, Any]) -> tuple[ResolvedLayer, ...]:
    """Every fusion group in order. params: those of ``tune``, and ``equivalent_transformation`` where it is stated.

    Raises RecipeError: a value that is not accepted, or a selector that selects nothing.
    """
    request = parse_request(params)
    matched = tuple(entry.groups for entry in resolve_overrides(summary, request.overrides))
    precisions = decide_precisions(summary, request.lane, asked(request, matched), frozenset())
    thresholds = tensor_thresholds(summary, request, matched)
    types = {node.name: node.op_type for node in summary.nodes}
    roles = roles_of(summary)
    makers = summary.producer_group()
    learnt = layers_to_learn(summary, params.get("mod") or {})
    made = []
    for group in summary.groups:
        mine = _Mine.of(group.name, request, matched)
        settings = _numbers(group, precisions)
        if precisions.holds_weights(group):
            settings |= {
                **_weights(group, types, request, mine),
                **dict(_steps(params, mine, learnt=group.name in learnt)),
            }
        tensor = group.outputs[0] if group.outputs else ""
        if tensor in precisions.dtypes and tensor in thresholds:
            threshold = thresholds[tensor]
            chosen = {"method": threshold.method, "percentile": threshold.percentile}
            fixed = fixed_range(makers.get(tensor)) is not None
            settings.update(_ranges(chosen, threshold.asymmetric, params, mine, fixed=fixed))
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


def _numbers(group: FusionGroup, precisions: Precisions) -> dict[str, Setting]:
    """Precision of the arithmetic, and the integer type of what is made."""
    entry = precisions.groups[group.name]
    settings = {"activation": Setting(value=entry.precision, why=entry.why)}
    held = [precisions.dtypes[name] for name in group.outputs if name in precisions.dtypes]
    if entry.accumulator_output:
        settings["output"] = Setting(value="int32 accumulator", why="no integer layer reads it")
    elif held and precisions.inner.issuperset(group.outputs):
        settings["output"] = Setting(value="inner int16", why="fused with the function that reads it")
    elif held:
        settings["output"] = Setting(value=held[0], why=entry.why)
    return settings


def _weights(group: FusionGroup, types: Mapping[str, str], request: Request, mine: _Mine) -> dict[str, Setting]:
    whole = Setting(value=request.lane.weights, why=f"lane {request.lane.name}")
    if request.weight_bits is not None:
        whole = Setting(value=f"int{request.weight_bits}", why="quant_config.weights")
    plain = request.granularity == Request(lane=request.lane).granularity
    chosen = Setting(value=request.granularity, why=_DEFAULT if plain else "quant_config.weights")
    settings = {
        "weights": mine.last("weights") or _kept(group, types, whole),
        "granularity": mine.last("granularity") or chosen,
    }
    if settings["granularity"].value == "per_group":
        size = Setting(value=request.group_size, why="quant_config.weights")
        settings["group_size"] = mine.last("group_size") or size
    if not request.symmetric_weights:
        settings["symmetric"] = Setting(value=False, why="quant_config.weights")
    return settings


def _kept(group: FusionGroup, types: Mapping[str, str], asked: Setting) -> Setting:
    """Of 4-bit weights that no override names: what keeps 8 (quant/weight_choice.py)."""
    operators = {types[node] for node in group.nodes}
    if asked.value == "int4" and "ConvTranspose" in operators:
        return Setting(value="int8", why="a transposed convolution keeps 8 bits")
    if asked.value == "int4" and "Conv" in operators:
        return Setting(value="int4 (int8 if depthwise)", why=asked.why)
    return asked


def _ranges(
    chosen: Mapping[str, str | float], asymmetric: bool, params: Mapping[str, Any], mine: _Mine, *, fixed: bool
) -> dict[str, Setting]:
    """How the range of what the group makes is chosen."""
    if fixed:
        return {"method": Setting(value="fixed range", why="known by mathematics")}
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


def _steps(params: Mapping[str, Any], mine: _Mine, *, learnt: bool) -> Iterator[tuple[str, Setting]]:
    """Steps of ``transform`` and ``tune``: asked for (true), forbidden (false), or left to the level of tuning."""
    level = params.get("tuning", {}).get("level", "default")
    for name in STEPS:
        found = mine.last(name)
        if found is None and name in params:
            stated = params[name]
            value = stated if isinstance(stated, str) else stated is not False and (name != "mod" or learnt)
            found = Setting(value=value, why=f"quant_config.{name}")
        if found is None and level != "none":
            found = Setting(value=f"level {level}", why="quant_config.tuning" if "tuning" in params else _DEFAULT)
        if found is not None:
            yield name, found
