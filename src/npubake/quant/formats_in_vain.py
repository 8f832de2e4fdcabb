"""quant: formats of weights that a recipe asks for and no layer takes. A summary and parameters in, faults out.

What asks for no format loads no numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.graph.resolve import ResolvedOverride
from npubake.graph.summary import GraphSummary
from npubake.quant.precisions import Precisions
from npubake.quant.weight_choice import input_channels, weight_formats
from npubake.quant.weight_formats import WeightFormat

_KEYS = frozenset({"weights", "granularity", "group_size"})
_READ = ("lane", "weights", "bits", "layer_overrides")


def requested_format_faults(
    summary: GraphSummary,
    params: Mapping[str, Any],
    overrides: Sequence[Mapping[str, Any]],
    resolved: Sequence[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[Fault]:
    """What is asked of weights and comes to nothing. params: of ``check``; overrides: those of the bit policy, too."""
    asked = params.get("asked", ())
    stated = any(place.startswith("weights.") for place in asked)
    if not stated and not any(_KEYS & entry.get("set", {}).keys() for entry in overrides):
        return
    from npubake.quant.request import parse_request  # it loads numpy, which nothing else here needs

    try:
        request = parse_request({name: params[name] for name in _READ if name in params})
    except RecipeError as error:
        yield from error.faults
        return
    made = weight_formats(summary, request, [entry.groups for entry in resolved]).by_group
    integer = {group.name for group in summary.groups if precisions.holds_weights(group)}
    formats = {name: held for name, held in made.items() if name in integer}
    heeded = {"weights.bits": request.weight_bits == 4, "weights.granularity": request.granularity == "per_group"}
    narrow = [place for place in asked if heeded.get(place, True)]  # any layer takes the others
    yield from format_faults(summary, narrow, formats, overrides, resolved)


def format_faults(
    summary: GraphSummary,
    places: Collection[str],
    formats: Mapping[str, WeightFormat],
    overrides: Sequence[Mapping[str, Any]],
    resolved: Iterable[ResolvedOverride],
) -> Iterator[Fault]:
    """Groups of input channels that every layer fits into whole, and 4 bits where every layer keeps 8.

    places: below ``quant_config`` (plan/asked.py), ``weights.bits`` where these are 4; formats: of the groups whose
    weights are held as integers.
    """
    if "weights.bits" in places and formats and all(held.dtype == "int8" for held in formats.values()):
        what = "every layer with weights keeps 8 bits: depthwise, transposed, of one input channel, or by an override"
        yield Fault(what=what, path="$.quant_config.weights.bits", hint="Remove it, or name layers: weights: int4.")
    groups = {group.name: group for group in summary.groups}
    grouped = {name: held.group_size for name, held in formats.items() if held.granularity == "per_group"}
    asked = {"quant_config.weights.granularity": tuple(grouped)} if "weights.granularity" in places else {}
    for entry in resolved:
        change = overrides[entry.index].get("set", {})
        if change.get("granularity", "per_group") == "per_group" and {"granularity", "group_size"} & change.keys():
            key = "group_size" if "group_size" in change else "granularity"
            asked[f"{entry.path}.set.{key}"] = tuple(name for name in entry.groups if name in grouped)
    for place, names in asked.items():
        if formats and not grouped:
            what = "no layer that it is for takes groups: its weights have 16 bits, or keep 8"
            yield Fault(what=what, path=f"$.{place}", hint="Remove it: per_channel is what they take.")
        channels = {name: input_channels(summary, groups[name]) for name in names}
        if names and all(0 < channels[name] <= grouped[name] for name in names):
            widest = max(channels.values())
            what = f"no layer sums over more than {widest} input channels: groups of {grouped[names[0]]} are whole rows"
            hint = f"Take a group_size below {widest}, or granularity per_channel."
            yield Fault(what=what, path=f"$.{place}", hint=hint)
