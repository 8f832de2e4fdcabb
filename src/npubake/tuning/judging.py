"""tuning: the judge. A slice of the calibration set that no step has seen, the float model's answers on it, figures.

Judged by SQNR in dB (quant/sqnr.py), pooled over the slice for each output: the float values against the differences.
Where an output is a Softmax that is nearly saturated, its logits are judged in its place: the probabilities of such a
network swing by 10 dB between neighbouring settings and say little. Where an output has few elements, what its last
weighted layer reads is judged beside it: ten logits of eight examples hardly tell 1 dB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet
from npubake.graph.summary import WEIGHTED_KINDS, GraphSummary
from npubake.quant.sqnr import sqnr_db
from npubake.tuning.examples import Feeds
from npubake.tuning.execution import values_of
from npubake.tuning.simulation import Form, Simulator

Example = Mapping[str, tuple[float, float]]  # of one example: judged tensor -> sums of squares, of signal and noise
_SATURATED = 0.9  # mean of the largest probability
_EXACT_DB = 120.0  # no error at all
_FAR_ABOVE_DB = 10.0  # of the worst output: errors that nobody sees beside those of that one
_LEAST_ENERGY = 1e-30  # of a tensor of zeros, which noise is divided by all the same
_MANY_ELEMENTS = 256  # of one example: more need no others beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """decibels: SQNR of each judged tensor, by the name of the graph output that it stands for, to 0.01 dB; examples:
    what it was made of.
    """

    decibels: Mapping[str, float]
    examples: tuple[Example, ...] = field(default=(), compare=False, repr=False)

    @property
    def mean(self) -> float:
        return sum(self.decibels.values()) / len(self.decibels)

    def gain(self, before: Score) -> float:
        """Mean over the outputs of what was won, in dB."""
        return self.mean - before.mean

    def worst_loss(self, before: Score) -> float:
        """The largest loss of one output, in dB; not positive where none lost. What an output loses that stays far
        above the worst of them does not count: 2 of 50 dB buy 5 where there were 20.
        """
        floor = min(self.decibels.values()) + _FAR_ABOVE_DB
        losses = {name: before.decibels[name] - value for name, value in self.decibels.items() if value < floor}
        return max(losses.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """feeds: the examples that judge; references: float values of the judged tensors, one entry an example.

    watched: graph output -> the tensors that are judged for it; its figure is the mean of theirs.
    """

    feeds: Sequence[Feeds]
    watched: Mapping[str, tuple[str, ...]]
    references: Sequence[Mapping[str, NDArray[Any]]]

    @classmethod
    def of(
        cls,
        model: onnx.ModelProto,
        summary: GraphSummary,
        samples: SampleSet,
        judged: Sequence[int],
        threads: int,
        others: Sequence[GraphSummary] = (),
    ) -> Judge:
        """Run the float model over the examples ``judged``. others: graphs of the same function that are judged, too;
        a tensor inside that one of them has not (a transformation changed it) judges nothing.
        """
        makers = summary.producer_group()  # an input or a constant given out as it is loses nothing
        outputs = [name for name in summary.outputs if name in makers and summary.tensors[name].dtype == "float32"]
        shared = set(summary.tensors).intersection(*(other.tensors for other in others))
        logits = {name: tensor for name, tensor in _logits(summary).items() if tensor in shared}
        features = {name: tensor for name in outputs if (tensor := _features(summary, name)) in shared}
        wanted = list(dict.fromkeys([*outputs, *(logits[name] for name in outputs if name in logits)]))
        wanted += [name for name in dict.fromkeys(features.values()) if name not in wanted]
        feeds = [samples.read(index) for index in judged]
        if not wanted or not feeds:
            return cls(feeds=(), watched={}, references=())
        values = list(values_of(model, wanted, feeds, threads))
        watched = {
            name: logits[name] if name in logits and _saturated([entry[name] for entry in values]) else name
            for name in outputs
        }
        beside = {name: (features[name],) if name in features else () for name in outputs}
        return cls(feeds=feeds, watched={name: (watched[name], *beside[name]) for name in outputs}, references=values)

    def on(self, model: onnx.ModelProto, samples: SampleSet, judged: Sequence[int], threads: int) -> Judge:
        """The same judge on other examples: it watches the same tensors, whatever these examples saturate."""
        feeds = [samples.read(index) for index in judged]
        references = list(values_of(model, list(self.tensors), feeds, threads)) if feeds else []
        return Judge(feeds=feeds, watched=self.watched if feeds else {}, references=references)

    @property
    def tensors(self) -> tuple[str, ...]:
        """All that is judged, each once."""
        return tuple(dict.fromkeys(tensor for several in self.watched.values() for tensor in several))

    @property
    def able(self) -> bool:
        """False where there is nothing to judge on or by."""
        return bool(self.watched)

    def score(self, simulator: Simulator, forms: Mapping[str, Form], chosen: Sequence[int] | None = None) -> Score:
        """Figures of one choice of forms; ``chosen``: on these examples alone."""
        places = range(len(self.feeds)) if chosen is None else chosen
        asked = [(self.feeds[place], forms) for place in places]
        return self.pooled(simulator.run_each(asked, lambda at, values: self._example(places[at], values)))

    def pooled(self, examples: Sequence[Example]) -> Score:
        """The figures of what single examples gave."""
        found = {
            tensor: decibels(sum(entry[tensor][0] for entry in examples), sum(entry[tensor][1] for entry in examples))
            for tensor in self.tensors
        }
        means = {
            name: round(sum(found[tensor] for tensor in several) / len(several), 2)
            for name, several in self.watched.items()
        }
        return Score(decibels=means, examples=tuple(examples))

    def worst_first(self, score: Score) -> list[int]:
        """Examples by their share of the noise of ``score``, which stands for all: few of them tell what costs most."""
        signal = {tensor: sum(entry[tensor][0] for entry in score.examples) for tensor in self.tensors}
        shares = [
            sum(relative_noise(entry[tensor][1], signal[tensor]) for tensor in self.tensors) for entry in score.examples
        ]
        return sorted(range(len(shares)), key=lambda place: -shares[place])

    def _example(self, place: int, values: Mapping[str, NDArray[Any]]) -> Example:
        found = {}
        for tensor in self.tensors:
            wanted = self.references[place][tensor]
            found[tensor] = float(np.square(wanted.astype(np.float64)).sum()), noise_of(wanted, values[tensor])
        return found


def decibels(signal: float, noise: float) -> float:
    """SQNR to 0.01 dB, between -120 and 120."""
    return round(sqnr_db(signal, noise, _EXACT_DB), 2)


def relative_noise(noise: float, signal: float) -> float:
    """Noise as a share of the signal's energy; huge where a tensor is all zeros."""
    return noise / max(signal, _LEAST_ENERGY)


def noise_of(wanted: NDArray[Any], values: NDArray[Any]) -> float:
    """Sum of squares of the difference; infinite where it is no number."""
    found = float(np.square(wanted.astype(np.float64) - values).sum())
    return found if isfinite(found) else inf


def _logits(summary: GraphSummary) -> dict[str, str]:
    """Graph outputs that a Softmax makes, and what it reads."""
    makers = summary.producer_group()
    made = {name: makers[name] for name in summary.outputs if name in makers}
    return {name: group.inputs[0] for name, group in made.items() if group.kind == "softmax"}


def _features(summary: GraphSummary, output: str) -> str:
    """What the last weighted layer in front of an output of few elements reads; '' where there is none."""
    if prod(summary.tensors[output].shape) >= _MANY_ELEMENTS:
        return ""
    makers, name = summary.producer_group(), output
    while name in makers:
        group = makers[name]
        if group.kind in WEIGHTED_KINDS:
            return group.inputs[0] if group.inputs[0] in makers else ""
        if len(group.inputs) != 1:
            return ""
        name = group.inputs[0]
    return ""


def _saturated(probabilities: Sequence[NDArray[Any]]) -> bool:
    return float(np.mean([entry.max(axis=-1).mean() for entry in probabilities])) > _SATURATED
