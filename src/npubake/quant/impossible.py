"""quant: precisions that are asked for and cannot be had, of a platform or of a layer. Data in, faults out; no numpy.

overrides: the bit policy and the layer overrides, in the order in which they win; resolved: what those matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from npubake.errors import BuildError, Fault
from npubake.graph.bit_policy import override_paths, setting_path
from npubake.graph.resolve import ResolvedOverride
from npubake.graph.summary import GraphSummary
from npubake.quant.lanes import has_integer_kernel, parse_lane

_SHOWN = 10


def precision_faults(params: Mapping[str, Any], overrides: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Precisions that the platform does not have: of the lane, and of each override. params: those of ``check``."""
    platform = params.get("platform", {})
    allowed = platform.get("precisions")
    name = platform.get("name", "the platform")
    hint = f"{name} has: {', '.join(allowed or ())}"
    if params.get("lane"):
        try:
            lane = parse_lane(params["lane"])
        except BuildError as error:
            yield from error.faults
        else:
            wanted = {lane.general, *lane.op_types.values()}
            for precision in sorted(wanted - set(allowed if allowed is not None else wanted)):
                what = f"lane {lane.name} needs {precision}, which {name} does not have"
                yield Fault(what=what, path="$.quant_config.lane", hint=hint)
    for place, override in zip(override_paths(overrides), overrides, strict=True):
        asked = override.get("set", {}).get("activation")
        if asked is not None and allowed is not None and asked not in allowed:
            yield Fault(what=f"{name} does not have {asked}", path=f"$.{setting_path(place, 'activation')}", hint=hint)


def kernel_faults(
    summary: GraphSummary, overrides: Sequence[Mapping[str, Any]], resolved: Iterable[ResolvedOverride]
) -> Iterator[Fault]:
    """Overrides that ask integers of layers of which none can be computed in integers."""
    for entry in resolved:
        refused = _without_kernel(summary, overrides[entry.index], entry)
        if refused and len(refused) == len(entry.groups):
            what = f"none of the layers that it matches has an integer kernel: {', '.join(refused[:_SHOWN])}"
            path = f"$.{setting_path(entry.path, 'activation')}"
            yield Fault(what=what, path=path, hint="ask float16 or float32 of them, or remove the override")


def kernel_warnings(
    summary: GraphSummary, overrides: Sequence[Mapping[str, Any]], resolved: Iterable[ResolvedOverride]
) -> Iterator[str]:
    """Overrides of which some matched layers have no integer kernel, with their names."""
    for entry in resolved:
        refused = _without_kernel(summary, overrides[entry.index], entry)
        if refused:
            yield f"{entry.path}: no integer kernel, stays in float: {', '.join(refused)}"


def _without_kernel(summary: GraphSummary, override: Mapping[str, Any], entry: ResolvedOverride) -> list[str]:
    """Matched groups that cannot do what the override asks."""
    if override.get("set", {}).get("activation") not in ("int8", "int16"):
        return []
    matched = set(entry.groups)
    return [group.name for group in summary.groups if group.name in matched and not has_integer_kernel(summary, group)]
