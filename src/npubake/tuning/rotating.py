"""tuning: a step that learns from examples, judged on all of them in turn. A learner and judges in, gains in dB out.

One slice of eight examples hardly tells 1 dB where a network has few outputs: roundings that differ by nothing but luck
lie 3 dB apart there. Level best asks again (cross-validation, Stone, *Cross-Validatory Choice and Assessment of
Statistical Predictions*, J. R. Statist. Soc. B 36, 1974): other slices judge in turn, and for each the step, and all
that was learned before it, is learned anew from the examples outside that slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from npubake.calibration.samples import SampleSet
from npubake.tuning.candidate import Candidate
from npubake.tuning.judging import Judge, Score
from npubake.tuning.learner import Learned, Learner
from npubake.tuning.splitting import Split, signature, split
from npubake.tuning.trials import Bench, Standing, Verdict

TURNS = 4  # slices that judge, the first one among them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rotation:
    """turns: further splits of the same examples; model: the float model that judges."""

    bench: Bench
    learner: Learner
    model: onnx.ModelProto
    turns: Sequence[Split]

    def verdict(self, before: Standing, known: Learned, after: Standing, learned: Learned) -> Verdict:
        """What ``after`` wins over ``before``: the mean over all slices. known, learned: how the weights and biases of
        the two were learned. Both have been scored on the slice that judges everything.
        """
        assert before.score is not None
        assert after.score is not None
        olds, news = [before.score], [after.score]
        for turn in self.turns:
            judge = self.bench.judge.on(self.model, self.learner.samples, turn.judged, self.bench.threads)
            olds.append(self._score(judge, self.learner.again(before.candidate, turn.learn, known)[0]))
            news.append(self._score(judge, self.learner.again(after.candidate, turn.learn, learned)[0]))
        old, new = _mean(olds), _mean(news)
        return Verdict(gain=new.gain(old), loss=new.worst_loss(old), slices=len(news))

    def _score(self, judge: Judge, candidate: Candidate) -> Score:
        return judge.score(self.bench.simulator(candidate), candidate.forms())


def _mean(scores: Sequence[Score]) -> Score:
    """The mean of each output's figure over several slices, in dB."""
    names = scores[0].decibels
    return Score(decibels={name: sum(each.decibels[name] for each in scores) / len(scores) for name in names})


def further_splits(samples: SampleSet, parts: Split) -> list[Split]:
    """Up to three more splits whose judges are disjoint from each other and from those of ``parts``, and at least half
    as many (similar examples stay together, so that sizes differ).
    """
    count, wanted = samples.count, len(parts.judged)
    left, found = list(parts.learn), list[Split]()
    signatures = {index: signature(samples.read_stored(index)) for index in left}
    while len(found) < TURNS - 1 and left and wanted:
        judged = left
        if len(left) >= 2 * wanted:
            chosen = split([signatures[index] for index in left], wanted / len(left)).judged
            judged = [left[place] for place in chosen]
        if 2 * len(judged) < wanted:
            break
        found.append(Split(learn=tuple(index for index in range(count) if index not in judged), judged=tuple(judged)))
        left = [index for index in left if index not in judged]
    return found
