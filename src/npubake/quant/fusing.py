"""quant: tensors that lie inside a fused kernel: between a weighted group and the one function that reads it. No onnx.

Hardware applies HardSwish, SiLU, GELU or Sigmoid to the accumulator of a convolution before it rounds to 8 bits; a
quantiser between the two loses accuracy for nothing (measured on networks with HardSwish and SiLU: 2 to 5 dB). In the
integer model such a tensor is int16; the calibrated model holds no quantiser for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.lanes import Decision
from npubake.quant.operands import WEIGHTED_KINDS
from npubake.quant.sharing import SharingClasses


def inner_tensors(
    summary: GraphSummary, decisions: Mapping[str, Decision], classes: SharingClasses, unfused: AbstractSet[str]
) -> frozenset[str]:
    """Results of int8 weighted groups that one int8 table alone reads. unfused: makers that a person keeps apart."""
    readers: dict[str, list[FusionGroup]] = {}
    for group in summary.groups:
        for name in group.inputs:
            readers.setdefault(name, []).append(group)
    return frozenset(
        name
        for group in summary.groups
        if group.kind in WEIGHTED_KINDS and decisions[group.name].precision == "int8" and group.name not in unfused
        for name in group.outputs
        if name not in summary.outputs and len(classes.members[classes.of[name]]) == 1
        for reader in [readers.get(name, [])]
        if len(reader) == 1 and reader[0].kind == "table" and decisions[reader[0].name].precision == "int8"
    )
