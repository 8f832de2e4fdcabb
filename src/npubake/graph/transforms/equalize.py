"""Room ``graph/transforms``: channels scaled so that their ranges are alike. A model and ranges enter, a model leaves.

Positive factors f move through everything with g(f x) = f g(x) (graph/transforms/channels.py): y = W2 g(W1 x + b1) + b2
equals (W2 / f) g((f W1) x + f b1) + b2, with gamma and beta of a normalisation in the place of W1 and b1 (smoothing),
and y = W2 h(x) equals (W2 / f) (f h(x)) for any function h, at the cost of one multiplication.
Factors are powers of two, so that the float outputs keep their bits; sizes: graph/transforms/factors.py.

A tensor that is scaled takes a name of its own (``t/equalized``), since its values differ from those of ``t``.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.editing import GraphEditor
from npubake.graph.groups import find_groups
from npubake.graph.passes.outcome import Declined
from npubake.graph.summary import Provenance
from npubake.graph.transforms.applying import apply_factors
from npubake.graph.transforms.channels import FIXED, ChannelMap, Reach, WriterKind
from npubake.graph.transforms.factors import Ranges, Strength, exponents
from npubake.graph.transforms.prediction import Levels, Prediction
from npubake.graph.transforms.ranges import ChannelRange
from npubake.graph.transforms.tracing import trace_channels
from npubake.graph.transforms.weights import column_ranges, row_ranges

Values = NDArray[np.float64]


# Gain on three networks, two runs each, dB on average: 4.8 with 8, 4.6 with 10, 3.8 with 12 and with no bound.
_DEVIATIONS = 10.0
_BLIND = 0.5  # Nagel et al.: nothing was observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """writers: what may scale its result; alphas: shares to choose from; gain: the fraction of a family's predicted
    error that must go, else it stays as it is; limit: largest power of two; levels: of the lane.
    """

    writers: AbstractSet[WriterKind]
    alphas: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    gain: float = 0.2  # between 0.1 and 0.4 networks differ by no more than they vary
    limit: int = 6
    levels: Levels = field(default_factory=Levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """One writer whose result was scaled. writer: its node; readers: weighted nodes that divide; kind: of the writer;
    least, most: the extreme factors; channels: how many are not one.
    """

    writer: str
    kind: WriterKind
    tensor: str
    readers: tuple[str, ...]
    least: float
    most: float
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Equalized:
    """The new model, what became of tensors, ``observed`` with the tensors of new names, what was done, and where
    nothing was.
    """

    model: onnx.ModelProto
    provenance: tuple[Provenance, ...]
    observed: Mapping[str, ChannelRange]
    scaled: tuple[Scaled, ...] = ()
    declined: tuple[Declined, ...] = ()


def equalize(
    model: onnx.ModelProto,
    observed: Mapping[str, ChannelRange],
    scaling: Scaling,
    excluded: AbstractSet[str] = frozenset(),
) -> Equalized:
    """``model`` (optimised) with channels scaled; ``excluded``: nodes that stay as they are.

    observed: by tensor; where a family of tensors has none, the rows of the weights that make it stand in for it, at
    alpha = 1/2. Raises StageError where a scaled constant would leave float32's range.
    """
    editor = GraphEditor(model)
    ends = {group.nodes[-1]: group.nodes for group in find_groups(model) if group.kind == "table" and group.nodes[1:]}
    channels = trace_channels(editor, Reach(writers=scaling.writers, excluded=excluded, function_ends=ends))
    known = {tensor: entry for tensor, entry in observed.items() if _fits(channels, tensor, entry)}
    bulk = {tensor: entry.without_outliers(_DEVIATIONS) for tensor, entry in known.items()}
    factors = _chosen(channels, bulk, scaling)
    scaled, declined = _scaled(channels, factors), _declined(channels, factors)
    changed = apply_factors(channels, factors)
    ranges = {entry.new: known[entry.old].scaled(entry.factors) for entry in changed if entry.old in known}
    return Equalized(
        model=editor.finish(),
        provenance=tuple(record for entry in changed if (record := entry.record()) is not None),
        observed={**observed, **ranges},
        scaled=scaled,
        declined=declined,
    )


def _fits(channels: ChannelMap, tensor: str, entry: ChannelRange) -> bool:
    """Whether the channels that were observed are those that may be scaled."""
    return channels.axis.get(tensor) == entry.axis and len(channels.ids[tensor]) == len(entry.low)


def _chosen(channels: ChannelMap, observed: Mapping[str, ChannelRange], scaling: Scaling) -> Values:
    """Factors by id: of every family those of the alpha with the least predicted error, or none at all."""
    ranges = _ranges(channels, observed)
    prediction = Prediction(channels, observed, scaling.levels)
    chosen = np.exp2(exponents(ranges, Strength(alpha=_BLIND, limit=scaling.limit)).astype(np.float64))
    ones = np.ones(channels.count)
    before = prediction.errors(ones)
    known = before > 0.0
    least = np.where(known, before * (1.0 - scaling.gain), 0.0)
    chosen = np.where(known, ones, chosen)
    for alpha in scaling.alphas:
        factors = np.exp2(exponents(ranges, Strength(alpha=alpha, limit=scaling.limit)).astype(np.float64))
        errors = prediction.errors(factors)
        better = known & (errors < least)
        chosen, least = np.where(better, factors, chosen), np.where(better, errors, least)
    chosen[FIXED] = 1.0
    return chosen


def _ranges(channels: ChannelMap, observed: Mapping[str, ChannelRange]) -> Ranges:
    """Both ranges of every id."""
    activation = np.full(channels.count, np.nan)
    made = np.full(channels.count, np.nan)
    weights = np.full(channels.count, np.nan)
    for tensor, ids in channels.ids.items():
        if tensor in observed:
            _raise(activation, ids, observed[tensor].magnitude)
    for writer in channels.writers:
        if writer.kind == "weighted":
            _raise(made, writer.ids, row_ranges(writer.node, channels.editor.needed_constant(writer.node.input[1])))
    for reader in channels.readers:
        columns = column_ranges(reader.node, channels.editor.needed_constant(reader.node.input[1]))
        if columns is not None:
            np.fmax.at(weights, reader.ids, columns)
    return Ranges(
        activation=np.where(np.isnan(activation), made, activation), weights=weights, family=channels.families()
    )


def _raise(known: Values, ids: NDArray[np.int64], magnitude: Values) -> None:
    """Take relative magnitudes of one tensor into those of its ids."""
    largest = magnitude.max(initial=0.0)
    np.fmax.at(known, ids, magnitude / largest if largest > 0.0 else magnitude)


def _scaled(channels: ChannelMap, factors: Values) -> tuple[Scaled, ...]:
    """What is done to each writer's result."""
    dividing: dict[int, dict[str, None]] = {}
    for reader in channels.readers:
        for index in np.unique(reader.ids).tolist():
            dividing.setdefault(index, {})[reader.node.name] = None
    found = []
    for writer in channels.writers:
        own = factors[writer.ids]
        if (own == 1.0).all():
            continue
        readers = {name: None for index in np.unique(writer.ids).tolist() for name in dividing.get(index, ())}
        found.append(
            Scaled(
                writer=writer.node.name,
                kind=writer.kind,
                tensor=writer.tensor,
                readers=tuple(readers),
                least=float(own.min()),
                most=float(own.max()),
                channels=int((own != 1.0).sum()),
            )
        )
    return tuple(found)


def _declined(channels: ChannelMap, factors: Values) -> tuple[Declined, ...]:
    """Writers whose result stays as it is, with the node for whose sake, or that nothing differs."""
    found = []
    for writer in channels.writers:
        if (factors[writer.ids] != 1.0).any():
            continue
        keepers = {channels.keepers[index]: None for index in writer.free.tolist() if index in channels.keepers}
        free = bool((writer.ids != FIXED).any())
        why = (
            "nothing is won: its channels are alike, or its weights would lose as much"
            if free
            else f"kept for {next(iter(keepers), 'no reader')}"
        )
        found.append(Declined(node=writer.node.name, why=why))
    return tuple(found)
