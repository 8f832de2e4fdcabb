"""Qualcomm toolchain: what a target asks that the HTP or its compiler cannot do, for ``check``. Summary and parameters
in, faults and sentences out; no onnx, and numpy only where formats of weights are asked for.

What depends on the operators themselves is the compiler's to say: ``probe`` asks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.graph.bit_policy import override_paths
from npubake.graph.resolve import ResolvedOverride
from npubake.graph.summary import GraphSummary
from npubake.nearest import did_you_mean
from npubake.quant.lanes import NO_KERNEL, float_tensors, holds_float
from npubake.quant.precisions import Precisions
from npubake.quant.weight_choice import weight_formats
from npubake.toolchains import Judged
from npubake.toolchains.qualcomm.aimet.refusals import aimet_faults
from npubake.toolchains.qualcomm.edge_refusals import edge_faults
from npubake.toolchains.qualcomm.htp.refusal_table import TO_THE_CPU, on_the_spot

_OPTIONS = "$.toolchain_options.qualcomm"
_REFUSED = "the compiler refuses it with error 3110, which names no reason"
# Why an SoC has not a lane: docs/platforms.md, measured with QNN 2.51.0, SoC by SoC.
_LANE_REASONS: Mapping[str, str] = {
    "a16w16": f"its HTP multiplies no weights of 16 bits (v73 and later do); {_REFUSED}",
    "fp16": f"its HTP has no float16; {_REFUSED}",
    "fp16_a8w8": f"its HTP has no float16, in which this lane computes most layers; {_REFUSED}",
}
# Not computed in integers on an SoC without float: a Cast nowhere; an LSTM because the compiler makes no operator of it
# (QNN_LSTM_FAIL, QNN 2.51.0, soc_model 93). Of every other operator the probe tells: a CumSum is computed there.
_NO_INTEGERS = frozenset(("Cast", "LSTM"))
_FORMAT_KEYS = frozenset({"weights", "granularity", "group_size"})
_SHOWN = 10
_GROUPS = "the HTP compiler takes no weights with a scale for each group of input channels"
_ZERO_POINTS = "the HTP compiler takes no weights with a zero point for each channel"
_NARROW = "the HTP compiler takes no weights of 4 bits with a zero point"
_HINTS: Mapping[str, str] = {
    _GROUPS: "Take per_channel.",
    _ZERO_POINTS: "Say 'symmetric: true', or 'granularity: per_tensor', where a zero point is taken.",
    _NARROW: "Say 'symmetric: true', or take 8 bits.",
}


def judge(
    summary: GraphSummary,
    params: Mapping[str, Any],
    overrides: Sequence[Mapping[str, Any]],
    resolved: Sequence[ResolvedOverride],
    precisions: Precisions | None,
) -> Judged:
    """Every fault and warning. params: those of ``check``; overrides: the bit policy, too; precisions: what all comes
    to, None where the lane is not known.
    """
    faults = [*_lane_faults(params), *_removal_faults(params), *_runtime_faults(params), *_cpu_faults(summary, params)]
    faults += _fusion_faults(overrides, resolved)
    faults += edge_faults(summary, params)
    if params.get("quantiser") == "aimet":
        faults += aimet_faults(params)
    if precisions is None:
        return Judged(faults=tuple(faults))
    faults += _float_faults(summary, params, precisions)
    faults += _weight_faults(summary, params, overrides, resolved, precisions)
    return Judged(faults=tuple(faults), warnings=tuple(_crowded_outputs(summary, precisions)))


def _crowded_outputs(summary: GraphSummary, precisions: Precisions) -> Iterator[str]:
    """Boxes and scores in one output of 8 bits: one scale for both leaves nothing of the scores.

    Boxes go to hundreds of pixels, and a step of 640 / 255 is more than any score: quantised detectors have left with
    every score at 0 (ai-hub-models issue 278).
    """
    makers = summary.producer_group()
    for name in summary.outputs:
        group = makers.get(name)
        if group is None or group.kind != "concat" or precisions.dtypes.get(name) != "uint8":
            continue
        shapes = [summary.tensors[part].shape for part in group.inputs]
        if len(shapes) > 1 and all(len(shape) == 3 for shape in shapes) and any(shape[1] == 4 for shape in shapes):
            yield (
                f"output {name!r} holds boxes and scores in one tensor of 8 bits: its one scale follows the boxes, and "
                "the scores are lost; export them as two outputs, or ask 'activation: int16' of "
                f"{group.name!r} by layer_overrides"
            )


def _lane_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """A lane that the SoC does not compute, and weights of 16 bits on one that has none."""
    platform, lane = params.get("platform", {}), params.get("lane", "")
    name, lanes = platform.get("name", "the platform"), platform.get("lanes")
    if lanes is None:
        return
    hint = f"{name} has: {', '.join(lanes)}"
    if lane and lane not in lanes:
        why = _LANE_REASONS.get(lane, "its platform file does not list it")
        yield Fault(what=f"lane {lane} on {name}: {why}", path="$.quant_config.lane", hint=hint)
    elif "a16w16" not in lanes:
        if params.get("weights", {}).get("bits") == 16:
            yield _wide_weights(name, "$.quant_config.weights.bits")
        overrides = params.get("layer_overrides", ())
        for place, override in zip(override_paths(overrides), overrides, strict=True):
            if override.get("set", {}).get("weights") == "int16":
                yield _wide_weights(name, f"$.{place}.set.weights")


def _wide_weights(platform: str, path: str) -> Fault:
    what = f"weights of 16 bits on {platform}: {_LANE_REASONS['a16w16']}"
    return Fault(what=what, path=path, hint="Take 8 bits, and 16 for the activations of these layers.")


def _removal_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    for side, types in params.get("remove", {}).items():
        for position, kind in enumerate(types):
            what = f"nothing is removed at the edges of a context binary ({kind})"
            hint = "Take remove away: with 'io: quantized' in toolchain_options.qualcomm it takes and gives integers."
            yield Fault(what=what, path=f"$.remove.{side}[{position}]", hint=hint)


def _runtime_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Camera frames on the SDK's road, whose converter gets the float model."""
    if params.get("road") != "sdk":
        return
    from npubake.toolchains.qualcomm.qairt.naming import PICTURES  # it loads numpy, which nothing else here needs

    taken = (*PICTURES, "featuremap")
    for name, entry in params.get("runtime_input", {}).items():
        kind = entry.get("type", "featuremap")
        if kind not in taken:
            what = f"the board cannot feed {kind} into a binary of the SDK's converters: no float nodes decode it there"
            hint = f"Take 'road: wheel', or convert it in the application; this road takes {', '.join(taken)}. "
            hint += "platform_options.PLATFORM.runtime_input says it for this platform alone."
            yield Fault(what=what, path=f"$.runtime_input.{name}.type", hint=hint)


def _fusion_faults(overrides: Sequence[Mapping[str, Any]], resolved: Sequence[ResolvedOverride]) -> Iterator[Fault]:
    """``fuse: false``, which asks for a quantiser between a layer and its function: here there is one everywhere."""
    for entry in resolved:
        if entry.groups and overrides[entry.index].get("set", {}).get("fuse") is False:
            what = "every result has a quantiser of its own on the HTP, and its compiler alone decides what it fuses"
            hint = "Remove it; platform_options.PLATFORM.layer_overrides says it for the other platforms alone."
            yield Fault(what=what, path=f"$.{entry.path}.set.fuse", hint=hint)


def _cpu_faults(summary: GraphSummary, params: Mapping[str, Any]) -> Iterator[Fault]:
    """Nodes that may stay on the CPU and do not exist."""
    known = [node.name for node in summary.nodes]
    for index, name in enumerate(params.get("cpu_nodes", ())):
        if name not in known:
            what = f"the optimised model has no node {name!r}"
            yield Fault(what=what, path=f"{_OPTIONS}.cpu_nodes[{index}]", hint=did_you_mean(name, known))


def _float_faults(summary: GraphSummary, params: Mapping[str, Any], precisions: Precisions) -> Iterator[Fault]:
    """Layers that the HTP computes in float alone, on an SoC that computes none. One fault for each operator type."""
    platform = params.get("platform", {})
    if "float16" in platform.get("precisions", ("float16",)):
        return
    kinds = {node.name: node.op_type for node in summary.nodes}
    cpu = frozenset(params.get("cpu_nodes", ()))
    found: dict[str, list[str]] = {}
    for group in summary.groups:
        forced = precisions.groups[group.name].why.startswith(NO_KERNEL) and float_tensors(summary, group.inputs)
        wanting = not _NO_INTEGERS.isdisjoint(kinds[node] for node in group.nodes)
        if forced and wanting and holds_float(summary, group) and not cpu.issuperset(group.nodes):
            found.setdefault(kinds[group.nodes[0]], []).append(group.nodes[0])
    for kind, names in found.items():
        rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        shown = ", ".join(repr(name) for name in names[:_SHOWN]) + rest
        what = f"{kind} {shown} would be computed in float, which {platform.get('name', 'the platform')} cannot"
        hint = "Express it by operators that are computed in integers at export, or take an SoC with float16"
        hint = on_the_spot(kind, f"{hint}; {TO_THE_CPU}")
        yield Fault(what=what, where=names[0], hint=hint)


def _weight_faults(
    summary: GraphSummary,
    params: Mapping[str, Any],
    overrides: Sequence[Mapping[str, Any]],
    resolved: Sequence[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[Fault]:
    """Formats of weights that the compiler does not take, at the last place that decided them."""
    if not params.get("weights") and not any(_FORMAT_KEYS & entry.get("set", {}).keys() for entry in overrides):
        return
    from npubake.quant.request import parse_request  # it loads numpy, which nothing else here needs

    read = {name: params[name] for name in ("lane", "weights", "bits", "layer_overrides") if name in params}
    try:
        request = parse_request(read)
    except RecipeError:
        return  # told by the checks that all toolchains share
    places = _deciding_places(overrides, resolved)
    found: dict[tuple[str, str], list[str]] = {}
    integer = {group.name for group in summary.groups if precisions.holds_weights(group)}
    for group, held in weight_formats(summary, request, [entry.groups for entry in resolved]).by_group.items():
        if group not in integer:
            continue
        if held.granularity == "per_group":
            found.setdefault((_place(places, group, "granularity", "group_size"), _GROUPS), []).append(group)
        elif held.granularity == "per_channel" and not held.symmetric:
            found.setdefault(("quant_config.weights.symmetric", _ZERO_POINTS), []).append(group)
        elif held.dtype == "int4" and not held.symmetric:
            found.setdefault(("quant_config.weights.symmetric", _NARROW), []).append(group)
    for (path, why), groups in found.items():
        named = f"{', '.join(groups[:_SHOWN])}" + (f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else "")
        yield Fault(what=f"{why}: {named}", path=f"$.{path}", hint=_HINTS[why])


def _deciding_places(
    overrides: Sequence[Mapping[str, Any]], resolved: Sequence[ResolvedOverride]
) -> dict[tuple[str, str], str]:
    """(group, key) -> the place of the last override that says the key of the group."""
    return {
        (group, key): f"{entry.path}.set.{key}"
        for entry in resolved
        for key in _FORMAT_KEYS & overrides[entry.index].get("set", {}).keys()
        for group in entry.groups
    }


def _place(places: Mapping[tuple[str, str], str], group: str, *keys: str) -> str:
    """Where the first of ``keys`` that an override says of the group stands; else where the first one does for all."""
    said = (places[group, key] for key in keys if (group, key) in places)
    return next(said, f"quant_config.weights.{keys[0]}")
