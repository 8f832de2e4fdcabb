"""calibration: which axis of a tensor holds its channels, one rule for all per-channel statistics. Graph in, ints out.

The channels of a tensor are what the weights of its readers tell apart, or those of its maker:

1. where a ``conv`` or ``conv_transpose`` group makes or reads it and its rank is 3 or more: axis 1;
2. else where a ``linear``, ``layer_norm`` or ``matmul`` group makes or reads it: the last axis;
3. else axis 1 for ranks 4 and more, the last axis for ranks 1 to 3.

A tensor of rank 0 is one channel, along axis 0. A movement between two layouts (Transpose, Reshape) therefore changes
the axis, and so it should: rule 1 or 2 holds on either side of it.
"""

from __future__ import annotations

from npubake.graph.summary import GraphSummary

_FRONT = ("conv", "conv_transpose")
_BACK = ("linear", "layer_norm", "matmul")


def channel_axes(graph: GraphSummary) -> dict[str, int]:
    """The channel axis, 0 or more, of every quantisable tensor, in their order."""
    kinds: dict[str, set[str]] = {name: set() for name in graph.quantisable()}
    for group in graph.groups:
        for tensor in (*group.inputs, *group.outputs):
            if tensor in kinds:
                kinds[tensor].add(group.kind)
    return {name: _axis(len(graph.tensors[name].shape), touched) for name, touched in kinds.items()}


def _axis(rank: int, touched: set[str]) -> int:
    last = max(rank - 1, 0)
    if rank >= 3 and not touched.isdisjoint(_FRONT):
        return 1
    if not touched.isdisjoint(_BACK):
        return last
    return 1 if rank >= 4 else last
