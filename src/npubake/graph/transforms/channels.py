"""Room ``graph/transforms``: which channels of which tensors share a factor. A model enters, a ``ChannelMap`` leaves.

Every channel of a float tensor has an *id*. A tensor t may become f * t, one positive factor a channel, where what
makes the channel can multiply by f and everything that reads it can divide. Operators with g(f x) = f g(x) hand ids on;
an Add ties those of its operands; whatever is neither gives its channels the id ``FIXED``, whose factor is one.

*Writers* make new ids: weighted operators (rows of W and the bias times f), the gamma and beta of a normalisation, and,
where they are asked for, other functions, behind which a Mul is put. *Readers* divide: weighted operators, by columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.editing import GraphEditor
from npubake.graph.transforms.components import components

Ids = NDArray[np.int64]
FIXED = 0
_NONE = np.zeros(0, np.int64)

WriterKind = Literal["weighted", "norm", "function"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Writer:
    """``node`` makes channels ``ids`` of ``tensor`` and can multiply each by a factor.

    free: after ``solve``, the ids as they would be were nothing fixed: the keys of ``ChannelMap.keepers``.
    """

    kind: WriterKind
    node: onnx.NodeProto
    tensor: str
    ids: Ids
    free: Ids


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reader:
    """The weighted ``node`` reads channels ``ids`` and can divide each by a factor."""

    node: onnx.NodeProto
    ids: Ids


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summand:
    """A constant (input ``slot`` of ``node``) that is added to channels ``ids`` and must be multiplied with them.

    axis: the channel axis, counted from the last (-1).
    """

    node: onnx.NodeProto
    slot: int
    ids: Ids
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What may be scaled. writers: the kinds that are used; excluded: nodes that keep all that they read and make;
    function_ends: node that ends a function of several nodes (x * sigmoid(x)) -> the names of all of them.
    """

    writers: AbstractSet[WriterKind]
    excluded: AbstractSet[str] = frozenset()
    function_ends: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ChannelMap:
    """kinds: of writers that are used; ids: tensor -> id of each channel; axis: tensor -> channel axis, from the first;
    tensors without channels are in neither.

    ``solve`` joins what was tied: from then on ids of channels that share a factor are equal, and ``keepers`` names for
    ids that may not be scaled the node for whose sake.
    """

    editor: GraphEditor
    kinds: AbstractSet[WriterKind]
    ids: dict[str, Ids] = field(default_factory=dict)
    axis: dict[str, int] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    summands: list[Summand] = field(default_factory=list)
    keepers: dict[int, str] = field(default_factory=dict)
    count: int = 1
    _ties: list[tuple[Ids, Ids]] = field(default_factory=list)
    _kept: list[tuple[Ids, str]] = field(default_factory=list)

    def fresh(self, tensor: str, axis: int) -> Ids:
        """New ids for every channel of ``tensor``."""
        size = (self.editor.shape(tensor) or ())[axis]
        made = np.arange(self.count, self.count + size, dtype=np.int64)
        self.count += size
        self.give(tensor, axis, made)
        return made

    def write(self, kind: WriterKind, node: onnx.NodeProto, axis: int) -> None:
        """``node`` makes channels of its first output anew; they are fixed where its kind is not used."""
        if kind not in self.kinds:
            self.give_fixed(node.output[0], axis)
            return
        ids = self.fresh(node.output[0], axis)
        self.writers.append(Writer(kind=kind, node=node, tensor=node.output[0], ids=ids, free=ids))

    def give(self, tensor: str, axis: int, ids: Ids) -> None:
        """``tensor`` has the channels ``ids`` along ``axis``. Raises ValueError where they are not as many as that."""
        shape = self.editor.shape(tensor) or ()
        if not 0 <= axis < len(shape) or shape[axis] != len(ids):
            raise ValueError(f"{tensor}: {len(ids)} channels along axis {axis} of {shape}")
        self.ids[tensor], self.axis[tensor] = ids, axis

    def give_fixed(self, tensor: str, axis: int) -> None:
        """Channels that nothing may scale, where ``tensor`` has such an axis."""
        shape = self.editor.shape(tensor) or ()
        if 0 <= axis < len(shape):
            self.give(tensor, axis, np.full(shape[axis], FIXED, np.int64))

    def tie(self, left: Ids, right: Ids) -> None:
        """Channel by channel, one factor for both."""
        self._ties.append((left, right))

    def fix(self, tensor: str, keeper: str) -> None:
        """Nothing may scale ``tensor``, for the sake of ``keeper`` (a node, or 'the output')."""
        if tensor in self.ids:
            self._kept.append((self.ids[tensor], keeper))

    def is_fixed(self, tensor: str) -> bool:
        """True where ``tensor`` has no channels, or was never given any that could be scaled."""
        return tensor not in self.ids or not self.ids[tensor].any()

    def solve(self) -> None:
        """Replace every id by the least one that it is tied to, by FIXED where one of them is kept."""
        left = np.concatenate([_NONE, *(pair[0] for pair in self._ties)])
        right = np.concatenate([_NONE, *(pair[1] for pair in self._ties)])
        root = components(self.count, left, right)
        kept = np.zeros(self.count, bool)
        for ids, keeper in self._kept:
            fresh = np.unique(root[ids])
            for index in fresh[~kept[fresh]].tolist():
                self.keepers[index] = keeper
            kept[fresh] = True
        self.writers = [
            replace(entry, free=root[entry.ids], ids=_freed(root, kept, entry.ids)) for entry in self.writers
        ]
        self.ids = {tensor: _freed(root, kept, ids) for tensor, ids in self.ids.items()}
        self.readers = [replace(entry, ids=_freed(root, kept, entry.ids)) for entry in self.readers]
        self.summands = [replace(entry, ids=_freed(root, kept, entry.ids)) for entry in self.summands]

    def families(self) -> Ids:
        """For each id the least id that appears with it in one tensor, or through others; FIXED joins nothing."""
        free = [own for ids in self.ids.values() if (own := ids[ids != FIXED]).size]
        left = np.concatenate([_NONE, *(np.full(own.size, own[0]) for own in free)])
        return components(self.count, left, np.concatenate([_NONE, *free]))


def _freed(root: Ids, kept: NDArray[np.bool_], ids: Ids) -> Ids:
    return np.where(kept[root[ids]], FIXED, root[ids])
