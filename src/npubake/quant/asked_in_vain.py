"""quant: what a recipe asks of layers that cannot heed it. A summary and parameters in, faults out; no numpy.

A setting that no matched layer reads would be accepted and ignored: it is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from npubake.errors import Fault
from npubake.graph.bit_policy import setting_path
from npubake.graph.resolve import ResolvedOverride, match_overrides
from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.fusing import inner_tensors
from npubake.quant.lanes import Decision
from npubake.quant.parameters import OUTPUT_TYPES
from npubake.quant.precisions import Precisions
from npubake.quant.sharing import SHARING_KINDS

OF_WEIGHTS = ("weights", "granularity", "group_size", "search_weight_scale", "hessian", "bias_correction", "mod")
OF_RANGES = ("method", "percentile", "asymmetric")
_NO_WEIGHTS = "none of the layers that it matches has weights that are held as integers"
_MATCH_WEIGHTS = "Match a Conv, ConvTranspose, Gemm or MatMul with constant weights that computes in integers."
KNOWN_RANGES = ("sigmoid", "hard_sigmoid", "tanh")  # functions; quant/tensor_ranges.py has the ranges, and numpy
_REFUSALS = (False, "none")  # a step that is kept out is kept out, whatever stands there


def granularity_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """A granularity of activations that the platform does not take, or that no kernel of ours computes with."""
    platform = params.get("platform", {})
    asked = params.get("calibration", {}).get("granularity", "per_tensor")
    taken = platform.get("activation_granularities", ["per_tensor"])
    path, name = "$.quant_config.calibration.granularity", platform.get("name", "the platform")
    if asked in taken and asked != "per_tensor":
        hint = "Take per_tensor, or int16 for the layers whose channels differ."
        yield Fault(what=f"{name} takes activations {asked}, the integer kernels do not", path=path, hint=hint)
    if asked not in taken:
        what = f"{name} does not take activations {asked}"
        hint = (
            f"{name} takes: {', '.join(taken)}. Channels that differ much are served by 'method: mse', by "
            "equivalent_transformation, or by int16 for these layers."
        )
        yield Fault(what=what, path=path, hint=hint)


def learned_layer_faults(
    summary: GraphSummary, params: Mapping[str, Any], precisions: Precisions | None = None
) -> list[Fault]:
    """Patterns of ``mod.layers`` that match nothing, or no layer whose weights are held as integers."""
    patterns = (params.get("mod") or {}).get("layers", ())
    selectors = [
        {"match": {"names": [pattern]}, "path": f"quant_config.mod.layers[{index}]"}
        for index, pattern in enumerate(patterns)
    ]
    resolved, faults = match_overrides(summary, selectors)
    if precisions is None:
        return faults
    weighted = {group.name for group in summary.groups if precisions.holds_weights(group)}
    vain = [entry for entry in resolved if entry.groups and weighted.isdisjoint(entry.groups)]
    return faults + [Fault(what=_NO_WEIGHTS, path=f"$.{entry.path}", hint=_MATCH_WEIGHTS) for entry in vain]


def setting_faults(
    summary: GraphSummary,
    overrides: Sequence[Mapping[str, Any]],
    resolved: Iterable[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[Fault]:
    """Settings of weights where no matched layer has integer weights, of ranges where none makes an integer, of
    precisions that something else decides, and ``fuse: false`` where nothing is fused.
    """
    groups = {group.name: group for group in summary.groups}
    fused, entries = _fused(summary, precisions), tuple(resolved)
    yield from _undecided(groups, overrides, entries, precisions)
    for entry in entries:
        change, matched = overrides[entry.index].get("set", {}), [groups[name] for name in entry.groups]
        if not matched:
            continue
        for key in (key for key in OF_WEIGHTS if key in change and change[key] not in _REFUSALS):
            if not any(precisions.holds_weights(group) for group in matched):
                yield Fault(what=_NO_WEIGHTS, path=f"$.{entry.path}.set.{key}", hint=_MATCH_WEIGHTS)
        for key in (key for key in OF_RANGES if key in change):
            if not any(_makes_integers(group, precisions) for group in matched):
                what = "nothing that the layers make, which it matches, is rounded to integers: no range is chosen"
                hint = "Remove it, or ask int8 or int16 of these layers and of those that read them."
                yield Fault(what=what, path=f"$.{entry.path}.set.{key}", hint=hint)
        if change.get("fuse") is False and fused.isdisjoint(name for group in matched for name in group.outputs):
            what = "none of the layers that it matches is fused with a function that keeps 16 bits in between"
            hint = "Remove it: a Clip or Relu behind a layer costs no range of its own, and other layers stand alone."
            yield Fault(what=what, path=f"$.{entry.path}.set.fuse", hint=hint)


def _fused(summary: GraphSummary, precisions: Precisions) -> frozenset[str]:
    """Results that would stay inside a kernel if no override kept them apart."""
    decisions = {name: Decision(precision=entry.precision, why=entry.why) for name, entry in precisions.groups.items()}
    return inner_tensors(summary, decisions, precisions.classes, frozenset())


def _makes_integers(group: FusionGroup, precisions: Precisions) -> bool:
    """Whether an override of the group's range reaches a tensor: what it makes, and reads where it only moves it."""
    reached = (*group.inputs, *group.outputs) if group.kind in SHARING_KINDS else group.outputs
    return any(name in precisions.dtypes for name in reached)


def _undecided(
    groups: Mapping[str, FusionGroup],
    overrides: Sequence[Mapping[str, Any]],
    entries: Sequence[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[Fault]:
    """Precisions that come to nothing in all layers of which the override has the last word."""
    for key in ("activation", "output"):
        last = _last_words(overrides, entries, key)
        for entry in entries:
            asked = overrides[entry.index].get("set", {}).get(key)
            unable = precisions.declined.get(entry.path, ()) if key == "activation" else ()
            decided = [name for name in entry.groups if asked is not None and last[name][0] == entry.path]
            mine = [groups[name] for name in decided if name not in unable]
            place = setting_path(entry.path, key)
            if not mine:
                continue
            if key == "activation" and all(precisions.groups[group.name].precision != asked for group in mine):
                what = f"these layers compute in {precisions.groups[mine[0].name].precision} all the same: they only "
                what += f"move values, and take the type of what is joined to them ({mine[0].name})"
                yield Fault(what=what, path=f"$.{place}", hint=f"Ask {asked} of the layers around them, or remove it.")
            held = {precisions.dtypes.get(name) for group in mine for name in group.outputs}
            if key == "output" and (OUTPUT_TYPES[asked] not in held):
                others = " and ".join(sorted(filter(None, held))) or "sums of 32 bits or floats"
                what = f"what these layers make is held as {others} all the same ({mine[0].name})"
                hint = f"Ask 'activation: {asked}' of them and of the layers that read them, or remove it."
                yield Fault(what=what, path=f"$.{place}", hint=hint)


def _last_words(
    overrides: Sequence[Mapping[str, Any]], entries: Iterable[ResolvedOverride], *keys: str
) -> dict[str, tuple[str, Any]]:
    """Group -> the last override that says one of ``keys``, by its path, and what it says (of the later key)."""
    last: dict[str, tuple[str, Any]] = {}
    for entry in entries:
        change = overrides[entry.index].get("set", {})
        for key in (key for key in keys if change.get(key) is not None):
            last.update(dict.fromkeys(entry.groups, (entry.path, change[key])))
    return last


def unheard(
    summary: GraphSummary,
    overrides: Sequence[Mapping[str, Any]],
    resolved: Iterable[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[str]:
    """Methods of layers whose ranges no method chooses, as warnings: other bits, or other data, would hear them."""
    groups = {group.name: group for group in summary.groups}
    for entry in resolved:
        makers = {name: groups[group] for group in entry.groups for name in groups[group].outputs}
        held = {name: precisions.dtypes[name] for name in makers if name in precisions.dtypes}
        deaf = all(dtype == "int16" or _has_known_range(makers[name]) for name, dtype in held.items())
        for key in (key for key in ("method", "percentile") if key in overrides[entry.index].get("set", {})):
            if held and deaf:
                yield (
                    f"{entry.path}.set.{key}: no method chooses the ranges of its layers: 16 bits keep all that was "
                    f"seen, and what a Softmax, Sigmoid or Tanh makes is known"
                )


def widened(
    summary: GraphSummary,
    overrides: Sequence[Mapping[str, Any]],
    resolved: Iterable[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[str]:
    """Layers asked to be int8 whose result is held as int16 for whoever reads it, as warnings: that cannot be helped
    from here, but what was asked of them is not what they make.
    """
    groups = {group.name: group for group in summary.groups}
    entries = tuple(resolved)
    wanted = _last_words(overrides, entries, "activation", "output")
    found: dict[str, list[str]] = {}
    for name, (path, _) in _last_words(overrides, entries, "activation").items():
        makes = [made for made in groups[name].outputs if made not in precisions.inner]
        decided = precisions.groups[name].precision
        if wanted[name][1] == decided == "int8" and any(precisions.dtypes.get(made) == "int16" for made in makes):
            found.setdefault(setting_path(path, "activation"), []).append(name)
    for place, names in found.items():
        yield (
            f"{place}: int8 is asked, but what {', '.join(names)} makes is held as int16, because something that reads "
            f"it, or shares its scale, has 16 bits: ask int8 there, too"
        )


def _has_known_range(group: FusionGroup) -> bool:
    return group.kind == "softmax" or (group.kind == "table" and group.function in KNOWN_RANGES)


def shadowed(overrides: Sequence[Mapping[str, Any]], resolved: Iterable[ResolvedOverride]) -> Iterator[str]:
    """Settings that later ones take back of every layer, as warnings: they do nothing."""
    entries = tuple(resolved)
    for position, entry in enumerate(entries):
        for key in overrides[entry.index].get("set", {}):
            later = [after for after in entries[position + 1 :] if key in overrides[after.index].get("set", {})]
            covered = {name for after in later for name in after.groups}
            if entry.groups and covered.issuperset(entry.groups):
                last = ", ".join(after.path for after in later if set(entry.groups).intersection(after.groups))
                place = setting_path(entry.path, key)
                yield f"{place}: does nothing, since all its layers are set otherwise by {last}"
