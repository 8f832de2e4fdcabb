"""quant: what a recipe asks of the whole model and no layer can heed. A summary, places and precisions in, faults out.

As with overrides (quant/asked_in_vain.py), what would be accepted and ignored is refused, with what to write instead.
No numpy. Places are those below ``quant_config`` that plan/asked.py lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from npubake.errors import Fault
from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary, NodeFact
from npubake.quant.precisions import Precisions

OF_WEIGHTS = ("weights.bits", "weights.granularity", "weights.symmetric", "search_weight_scale", "hessian", "mod")
OF_RANGES = ("calibration.method", "calibration.asymmetric", "load.scales")
OF_TUNING = ("tuning.level", "tuning.judge", "tuning.held_out")
OF_INPUTS = ("mod.learn.activation_scale", "mod.learn.zero_point")  # learned of what layers with weights read
TRANSFORMATION, BIASES = "equivalent_transformation", "bias_correction"
SMOOTHING, METHOD, WIDE = f"{TRANSFORMATION}.smoothing", "calibration.method", "tuning.max_int16"
_BIASED = ("Conv", "ConvTranspose", "Gemm")
_INTEGERS = (
    "Remove it, or have layers computed in integers: lane a8w8 or fp16_a8w8, or int8 by bits or layer_overrides."
)


def recipe_faults(
    summary: GraphSummary, places: Collection[str], precisions: Precisions, platform: Mapping[str, Any]
) -> Iterator[Fault]:
    """Every place that asks for what nothing in the model can heed. platform: its name and precisions."""
    weighted = [group for group in summary.groups if precisions.holds_weights(group)]
    if not precisions.dtypes:
        for place in _among(places, (*OF_RANGES, *OF_TUNING, WIDE)):
            yield _fault(place, "nothing in this model is held as an integer", _INTEGERS)
    if not weighted:
        for place in _among(places, (*OF_WEIGHTS, BIASES, TRANSFORMATION)):
            yield _fault(place, "no layer of this model has weights that are held as integers", _INTEGERS)
        return
    if BIASES in places and not any(_has_bias(summary, group) for group in weighted):
        what = "no layer whose weights are held as integers has a bias"
        yield _fault(BIASES, what, "Remove it; hessian and search_weight_scale need no bias.")
    if SMOOTHING in places and not _smooths(summary):
        what = "no layer with weights stands behind a LayerNormalization, or behind a factor for each channel"
        yield _fault(SMOOTHING, what, "Remove it, or write 'smoothing: false'.")
    if not any(precisions.dtypes.get(name) == "uint8" for group in weighted for name in group.inputs):
        for place in _among(places, OF_INPUTS):
            name = place.rpartition(".")[2]
            what = f"no layer with weights reads an activation of 8 bits, whose {name} could be learned"
            yield _fault(place, what, f"Take {name} out of learn; rounding and weight_scale are learned at any width.")
    if WIDE in places:
        yield from _of_lifting(precisions, platform)


def recipe_warnings(summary: GraphSummary, places: Collection[str], precisions: Precisions) -> Iterator[str]:
    """What is asked for and changes nothing at these bits, but would at others."""
    made = {name for group in summary.groups for name in group.outputs}
    held = {dtype for name, dtype in precisions.dtypes.items() if name in made and name not in precisions.inner}
    if METHOD in places and held == {"int16"}:
        yield f"quant_config.{METHOD}: all activations have 16 bits, which keep all that was seen, whatever the method"


def _of_lifting(precisions: Precisions, platform: Mapping[str, Any]) -> Iterator[Fault]:
    if "int16" not in platform.get("precisions", ("int16",)):
        what = f"{platform.get('name', 'the platform')} has no activations of 16 bits"
        yield _fault(WIDE, what, "Remove it: nothing is lifted there.")
    elif precisions.dtypes and "uint8" not in precisions.dtypes.values():
        yield _fault(WIDE, "no activation of this model has 8 bits", "Remove it: there is nothing to lift.")


def _among(places: Collection[str], names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if name in places)


def _fault(place: str, what: str, hint: str) -> Fault:
    key = place.rpartition(".")[0] if place in OF_INPUTS else place
    return Fault(what=what, path=f"$.quant_config.{key}", hint=hint)


def _has_bias(summary: GraphSummary, group: FusionGroup) -> bool:
    """Whether the group adds a constant: an operator's own bias, or the Add behind a MatMul."""
    nodes = {node.name: node for node in summary.nodes}
    members = [nodes[name] for name in group.nodes]
    return any(node.op_type == "Add" or (node.op_type in _BIASED and any(node.inputs[2:3])) for node in members)


def _smooths(summary: GraphSummary) -> bool:
    """Whether a layer with weights stands somewhere behind what could take factors; ``transform`` sees the rest."""
    nodes = {node.name: node for node in summary.nodes}
    computed = {name for node in summary.nodes for name in node.outputs}.union(summary.inputs)
    scaled: set[str] = set()
    for group in summary.groups:  # in topological order
        behind = bool(scaled.intersection(group.inputs))
        if behind and group.kind in WEIGHTED_KINDS:
            return True
        if behind or any(_takes_factors(summary, nodes[name], computed) for name in group.nodes):
            scaled.update(group.outputs)
    return False


def _takes_factors(summary: GraphSummary, node: NodeFact, computed: Collection[str]) -> bool:
    """A LayerNormalization, or a Mul by a constant with one element for each channel of the last axis (an RMS norm)."""
    if node.op_type != "Mul":
        return node.op_type == "LayerNormalization"
    channels = summary.tensors[node.outputs[0]].shape[-1:]
    constants = [
        summary.tensors[name].shape for name in node.inputs if name not in computed and name in summary.tensors
    ]
    return channels > (1,) and any(shape[-1:] == channels and prod(shape) == channels[0] for shape in constants)
