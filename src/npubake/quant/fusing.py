"""quant: tensors that lie inside a fused kernel: between a weighted group and the one function that reads it. No onnx.

The same holds for a multiplication by a constant behind the two (channel factors of an equalisation).

Hardware applies HardSwish, SiLU, GELU or Sigmoid to the accumulator of a convolution before it rounds to 8 bits, and a
quantiser between the two costs accuracy for nothing: without it the scores of a detector with SiLU won 2.6 dB, and a
classifier with HardSwish 2 to 2.6 dB on uncertain inputs with two of three methods. In the integer model such a tensor
is int16; the calibrated model holds no quantiser for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from npubake.graph.summary import WEIGHTED_KINDS, FusionGroup, GraphSummary
from npubake.quant.lanes import Decision
from npubake.quant.sharing import SharingClasses


def inner_tensors(
    summary: GraphSummary, decisions: Mapping[str, Decision], classes: SharingClasses, unfused: AbstractSet[str]
) -> frozenset[str]:
    """Results that never leave the kernel of an int8 weighted group. unfused: makers that a person keeps apart.

    What one table alone reads, also behind movements; and behind either of the two, what one multiplication by a
    constant alone reads.
    """
    readers = summary.reader_groups()
    inner: set[str] = set()
    for group in summary.groups:
        heads = group.kind in WEIGHTED_KINDS or (group.kind == "table" and inner.issuperset(group.inputs))
        if not heads or decisions[group.name].precision != "int8" or group.name in unfused:
            continue
        for name in group.outputs:
            chain, reader = _moved(name, readers, decisions)
            alone = set(chain).isdisjoint(summary.outputs) and set(classes.members[classes.of[name]]) == set(chain)
            if alone and reader is not None and _joins(group, reader, decisions):
                inner.update(chain)
    return frozenset(inner)


def _moved(
    name: str, readers: Mapping[str, tuple[FusionGroup, ...]], decisions: Mapping[str, Decision]
) -> tuple[list[str], FusionGroup | None]:
    """``name`` and what movements alone make of it, and the group that reads the last of them; None for several."""
    chain = [name]
    while len(found := readers.get(chain[-1], ())) == 1:
        reader = found[0]
        if reader.kind != "movement" or len(reader.outputs) != 1 or decisions[reader.name].precision != "int8":
            return chain, reader
        chain.append(reader.outputs[0])
    return chain, None


def _joins(maker: FusionGroup, reader: FusionGroup, decisions: Mapping[str, Decision]) -> bool:
    """Whether ``reader`` is computed in the kernel of its ``maker``."""
    kinds = ("table", "multiply") if maker.kind in WEIGHTED_KINDS else ("multiply",)
    return reader.kind in kinds and len(reader.inputs) == 1 and decisions[reader.name].precision == "int8"
