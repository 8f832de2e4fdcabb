"""quant: the range of every sharing class, widened until each weighted group has its divisors. No onnx, no graph.

A weighted group has an odd divisor for every channel only where ``127 * so >= si * max|w|`` (quant/weights.py).
Widening an output widens an input of whoever reads it, so the rule is applied in turn until nothing moves; ranges only
grow. A loop of shared scales around weights above 127 never ends, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npubake.errors import Fault, StageError
from npubake.quant.affine import tensor_parameters
from npubake.quant.parameters import IntegerType, TensorParameters
from npubake.quant.ranges import NEUTRAL, Range, widened
from npubake.quant.weights import DIVISOR_LIMIT, SPARED_DIVISOR, WEIGHT_LIMIT, ChannelWeights, least_output_scale

_MARGIN = 1.0 + 2.0**-20  # above the float32 rounding of a scale (2**-24): a raised scale is never below its bound
_WIDEST_INPUT = 16.0  # an int16 input gives at most 4 of its 16 bits to its readers' weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRange:
    """Range and type that a sharing class starts with.

    shared: several kernels write into it (a concat's inputs); cut: its range leaves out what no reader can tell apart.
    """

    span: Range
    dtype: IntegerType
    asymmetric: bool
    shared: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedEdge:
    """A weighted group between two classes. target: '' where its accumulator leaves unrounded."""

    group: str
    source: str
    target: str
    weights: ChannelWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedScale:
    """A scale that was raised. tensor: representative of its class; group: for whose sake; before, after: scales."""

    tensor: str
    group: str
    before: float
    after: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """parameters: of each class; raised: one entry a class and group, in the order found."""

    parameters: Mapping[str, TensorParameters]
    raised: tuple[RaisedScale, ...]


class _Settling:
    """Ranges and parameters while they grow."""

    def __init__(self, classes: Mapping[str, ClassRange]) -> None:
        self.classes = classes
        self.spans = {name: NEUTRAL if entry.span.dead else entry.span for name, entry in classes.items()}
        self.parameters = {name: self._made(name) for name in classes}
        self.raised: dict[tuple[str, str], RaisedScale] = {}

    def raise_to(self, tensor: str, group: str, scale: float, why: str) -> bool:
        """Widen the class of ``tensor`` until its scale is at least ``scale``; False where it is already."""
        before = self.parameters[tensor].scale
        if before >= scale:
            return False
        self.spans[tensor] = widened(self.spans[tensor], scale / before * _MARGIN)
        self.parameters[tensor] = self._made(tensor)
        first = self.raised.get((tensor, group))
        self.raised[tensor, group] = RaisedScale(
            tensor=tensor,
            group=group,
            before=first.before if first else before,
            after=self.parameters[tensor].scale,
            why=why,
        )
        return True

    def _made(self, name: str) -> TensorParameters:
        entry = self.classes[name]
        return tensor_parameters(self.spans[name], entry.dtype, asymmetric=entry.asymmetric)


def settle_ranges(classes: Mapping[str, ClassRange], edges: Sequence[WeightedEdge]) -> Settled:
    """Parameters of every class with which every edge has divisors. edges: in topological order.

    Raises StageError where raising never ends.
    """
    state = _Settling(classes)
    for edge in edges:
        _spare_weights(state, edge)
    for _ in range(len(edges) + 2):
        moved = [edge for edge in edges if edge.target and _give_divisors(state, edge)]
        if not moved:
            return Settled(parameters=state.parameters, raised=tuple(state.raised.values()))
    raise StageError(
        *(
            Fault(
                what="its input and output share one scale and a weight is above 127: no exact divisor exists",
                where=edge.group,
                hint=f"give it activation: float16 or float32 in layer_overrides (names: [{edge.group}])",
            )
            for edge in moved
        )
    )


def _give_divisors(state: _Settling, edge: WeightedEdge) -> bool:
    source = state.parameters[edge.source]
    needed = least_output_scale(source.scale, edge.weights, _least_divisor(state.classes[edge.target]))
    return state.raise_to(edge.target, edge.group, needed, "too small a divisor for its weights at the measured range")


def _least_divisor(target: ClassRange) -> int:
    """1 where the output has no bit to spare; 15 for an int16 output of its own, which keeps 12 of its bits (measured:
    3 dB on depthwise layers). In a shared class a smaller neighbour would pay for it.
    """
    return SPARED_DIVISOR if target.dtype == "int16" and not target.shared else 1


def _spare_weights(state: _Settling, edge: WeightedEdge) -> None:
    """An int16 input with a uint8 output would ask for divisors beyond 16383 and leave weight levels unused.

    The int16 scale has bits to spare: it is raised, at most 16 times, until the divisors fit.
    """
    if not edge.target or state.classes[edge.source].dtype != "int16" or state.classes[edge.target].dtype != "uint8":
        return
    used = edge.weights.absmax[edge.weights.absmax > 0]
    if not used.size:
        return
    start = tensor_parameters(state.classes[edge.source].span, "int16", asymmetric=False).scale
    fitting = WEIGHT_LIMIT * state.parameters[edge.target].scale / (DIVISOR_LIMIT * float(np.min(used)))
    why = "divisors above 16383 would leave weight levels unused"
    state.raise_to(edge.source, edge.group, min(fitting, start * _WIDEST_INPUT), why)
