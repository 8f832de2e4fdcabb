"""tuning: weights learned from chosen examples, whichever of three ways; what was gathered is kept for next time."""

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
# narrow, float: each layer from what it reads in the float model, narrow layers alone or all; execution: in order of
# execution, from what the quantised layers before it make; biases: the same, and the weights stay as they are.
Way = Literal["narrow", "float", "execution", "biases"]
_LEARNING_BYTES = 1 << 30  # of activations held while layers are rounded in order of execution
_LEAST_LEARNT = 4


@dataclass(slots=True, eq=False)
class Learner:
    """Rounds a candidate's weights. Moments of the float model do not depend on bits or scales: the last are kept."""

    samples: SampleSet
    threads: int
    _moments: tuple[Any, Mapping[str, Moments]] = field(default=((), {}))

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

    def learn(self, before: Candidate, indices: Sequence[int], way: Way, how: Rounding) -> tuple[Candidate, int]:
        """``before`` rounded anew, and from how many examples. narrow, biases: what other layers hold stays."""
        base = before if way in ("narrow", "biases") else nearest_everywhere(before)
        if way in ("execution", "biases"):
            feeds = self.feeds(base, indices)
            made, count = round_in_execution(base, feeds, how), len(feeds)
        else:
            made, count = round_from_moments(base, self.moments(base, indices, how), how), len(indices)
        return replace(base, constants={**base.constants, **made}), count

    def moments(self, base: Candidate, indices: Sequence[int], how: Rounding) -> Mapping[str, Moments]:
        """Of what each layer that ``how`` touches reads in the float model, over the examples ``indices``."""
        touched = tuple(name for name, layer in base.layers.items() if how.touches(layer))
        key = (base.start.name, tuple(sorted(indices)), touched, how.positions)
        if self._moments[0] != key:
            self._moments = key, float_moments(base, Examples(self.samples, sorted(indices)), how)
        return self._moments[1]

    def feeds(self, base: Candidate, indices: Sequence[int]) -> list[Feeds]:
        """As many of the examples as may lie in memory with all that the model makes of them."""
        held = 2 * peak_bytes(base.start.subject.summary)
        most = max(_LEARNING_BYTES // max(held, 1), _LEAST_LEARNT)
        return [self.samples.read(index) for index in sorted(indices[:most])]
