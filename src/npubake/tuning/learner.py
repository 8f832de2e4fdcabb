"""tuning: weights learned from chosen examples, in one of four ways; what was gathered is kept for next time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from npubake.calibration.samples import SampleSet
from npubake.tuning.candidate import Candidate
from npubake.tuning.examples import Examples, Feeds
from npubake.tuning.execution import peak_bytes
from npubake.tuning.hessian import HessianSettings
from npubake.tuning.moments import POSITIONS, Moments
from npubake.tuning.rounding import Rounding, float_moments, round_from_moments, round_in_execution
from npubake.tuning.searching import nearest_everywhere

NARROW = 150  # columns of a layer whose Hessian is quick to gather and to round by
NARROW_POSITIONS = 128  # of one example: enough for so few columns
# narrow, float: each layer from what it reads in the float model, narrow layers alone or all; execution: in order of
# execution, from what the quantised layers before it make; biases: the same, and the weights stay as they are.
Way = Literal["narrow", "float", "execution", "biases"]
Learned = Sequence[tuple[Way, Rounding]]  # one after another
_LEARNING_BYTES = 1 << 30  # of activations held while layers are rounded in order of execution
_LEAST_LEARNED = 4  # examples, however large the network


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Gathered:
    """Moments of the float model: of what (``key``), over which examples."""

    key: Any
    indices: tuple[int, ...]
    by_group: Mapping[str, Moments]


@dataclass(slots=True, eq=False)
class Learner:
    """Rounds a candidate's weights. Moments of the float model do not depend on bits or scales: the last are kept."""

    samples: SampleSet
    threads: int
    _moments: _Gathered = field(default_factory=lambda: _Gathered(key=(), indices=(), by_group={}))

    def how(self, rounded: frozenset[str], corrected: frozenset[str], settings: Mapping[str, Any]) -> Rounding:
        """rounded, corrected: groups; settings: of the recipe's ``hessian``."""
        hessian = {name: settings[name] for name in ("block_size", "damping", "act_order") if name in settings}
        return Rounding(
            rounded=rounded,
            corrected=corrected,
            hessian=HessianSettings(**hessian),
            positions=settings.get("positions", POSITIONS),
            threads=self.threads,
        )

    def learn(
        self, before: Candidate, indices: Sequence[int], way: Way, how: Rounding, known: Candidate | None = None
    ) -> tuple[Candidate, int]:
        """``before`` rounded anew, and from how many examples. narrow, biases: what other layers hold stays.

        known: a candidate that was rounded from the same examples in the same way.
        """
        base = before if way in ("narrow", "biases") else nearest_everywhere(before)
        if way in ("execution", "biases"):
            feeds = self.feeds(base, indices)
            made, count = round_in_execution(base, feeds, how), len(feeds)
        else:
            moments = self.moments(base, indices, how)
            made, count = round_from_moments(base, moments, how, known), len(indices)
        return replace(base, constants={**base.constants, **made}), count

    def again(
        self, candidate: Candidate, indices: Sequence[int], learned: Learned, known: Candidate | None = None
    ) -> tuple[Candidate, int]:
        """``candidate`` with all that ``learned`` says learned anew from the examples ``indices``, and how many.

        known: a candidate that was rounded from the same examples in the same way.
        """
        count = 0
        for way, how in learned:
            candidate, count = self.learn(candidate, indices, way, how, known)
        return candidate, count

    def moments(self, base: Candidate, indices: Sequence[int], how: Rounding) -> Mapping[str, Moments]:
        """Of what each layer that ``how`` touches reads in the float model, over the examples ``indices``. Examples
        beside those of the last time are added to what they gave.
        """
        touched = tuple(name for name, layer in base.layers.items() if how.touches(layer))
        key = (base.start.name, touched, how.positions)
        seen = self._moments.indices if self._moments.key == key else ()
        if not set(seen) <= set(indices):
            seen = ()
        others = sorted(set(indices).difference(seen))
        if others or not seen:
            made = float_moments(base, Examples(self.samples, others), how)
            for name, part in self._moments.by_group.items() if seen else ():
                made[name].take(part)
            self._moments = _Gathered(key=key, indices=(*seen, *others), by_group=made)
        return self._moments.by_group

    def feeds(self, base: Candidate, indices: Sequence[int]) -> list[Feeds]:
        """As many of the examples as may lie in memory with all that the model makes of them."""
        held = 2 * peak_bytes(base.start.subject.summary)
        most = max(_LEARNING_BYTES // max(held, 1), _LEAST_LEARNED)
        return [self.samples.read(index) for index in sorted(indices[:most])]
