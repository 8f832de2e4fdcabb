"""Qualcomm toolchain: what every fusion group computes in on the HTP. Summary and parameters in; no onnx.

The parameters know the integer kernels of the reference toolchain; the HTP computes more operators in integers. What a
recipe asks for in float stays there; what is there only for want of a kernel is computed in integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.lanes import LANES, NO_KERNEL, float_tensors, holds_float, is_integer
from npubake.quant.parameters import QuantizationParameters
from npubake.toolchains.qualcomm.adapting.grids import Bits
from npubake.toolchains.qualcomm.adapting.operators import FLOAT_ONLY, WIDE_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """What a group computes in. bits: of integers; why: of float."""

    integer: bool
    bits: Bits = 8
    why: str = ""


def computed_in(summary: GraphSummary, parameters: QuantizationParameters) -> dict[str, Computing]:
    """Of every group, in topological order, so that a movement that follows a maker finds it decided."""
    operators = {node.name: node.op_type for node in summary.nodes}
    lane: Bits = 16 if LANES[parameters.lane].general == "int16" else 8
    makers, made = summary.producer_group(), dict[str, Computing]()
    for group in summary.groups:
        entry = parameters.groups[group.name]
        wanting = sorted(FLOAT_ONLY.intersection(operators[node] for node in group.nodes))
        if is_integer(entry.precision):
            made[group.name] = Computing(integer=True, bits=16 if entry.precision == "int16" else 8)
        elif wanting and holds_float(summary, group):
            made[group.name] = Computing(integer=False, why=f"{wanting[0]} has no integer form on the HTP")
        elif _for_want_of_a_kernel(summary, group, entry.why, makers, made):
            wide = entry.why.startswith("beyond") or not WIDE_ONLY.isdisjoint(operators[node] for node in group.nodes)
            made[group.name] = Computing(integer=True, bits=16 if wide else lane)
        else:
            made[group.name] = Computing(integer=False, why=entry.why)
    return made


def _for_want_of_a_kernel(
    summary: GraphSummary,
    group: FusionGroup,
    why: str,
    makers: Mapping[str, FusionGroup],
    made: Mapping[str, Computing],
) -> bool:
    """Whether nobody asked for float: no kernel, nothing to quantise, or (a movement) makers that are in integers."""
    if not holds_float(summary, group):
        return True
    if why.startswith("follows "):
        sources = [makers[name].name for name in float_tensors(summary, group.inputs) if name in makers]
        return all(made[name].integer for name in sources)
    return why.startswith((NO_KERNEL, "beyond float16"))
