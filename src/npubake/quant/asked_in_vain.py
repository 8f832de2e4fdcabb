"""quant: what a recipe asks of layers that cannot heed it. A summary and parameters in, faults out; no numpy.

A setting that no matched layer reads would be accepted and ignored: it is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from npubake.errors import Fault
from npubake.graph.resolve import ResolvedOverride, match_overrides
from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.fusing import inner_tensors
from npubake.quant.lanes import Decision
from npubake.quant.precisions import Precisions

OF_WEIGHTS = ("weights", "granularity", "group_size", "search_weight_scale", "hessian", "bias_correction", "mod")
OF_RANGES = ("method", "percentile", "asymmetric")
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


def learnt_layer_faults(summary: GraphSummary, params: Mapping[str, Any]) -> list[Fault]:
    """Patterns of ``mod.layers`` that match nothing."""
    patterns = (params.get("mod") or {}).get("layers", ())
    selectors = [
        {"match": {"names": [pattern]}, "path": f"quant_config.mod.layers[{index}]"}
        for index, pattern in enumerate(patterns)
    ]
    return match_overrides(summary, selectors)[1]


def setting_faults(
    summary: GraphSummary,
    overrides: Sequence[Mapping[str, Any]],
    resolved: Iterable[ResolvedOverride],
    precisions: Precisions,
) -> Iterator[Fault]:
    """Settings of weights where no matched layer has integer weights, of ranges where none makes an integer, and
    ``fuse: false`` where nothing is fused.
    """
    groups = {group.name: group for group in summary.groups}
    fused = _fused(summary, precisions)
    for entry in resolved:
        change, matched = overrides[entry.index].get("set", {}), [groups[name] for name in entry.groups]
        if not matched:
            continue
        for key in (key for key in OF_WEIGHTS if key in change and change[key] not in _REFUSALS):
            if not any(precisions.holds_weights(group) for group in matched):
                what = "none of the layers that it matches has weights that are held as integers"
                hint = "Match a Conv, ConvTranspose, Gemm or MatMul with constant weights that computes in integers."
                yield Fault(what=what, path=f"$.{entry.path}.set.{key}", hint=hint)
        for key in (key for key in OF_RANGES if key in change):
            if not any(_makes_integers(group, precisions) for group in matched):
                what = "nothing that the layers make, which it matches, is held as an integer: no range is chosen"
                hint = "Remove it, or ask int8 or int16 of these layers."
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
    return any(name in precisions.dtypes for name in (*group.inputs, *group.outputs))
