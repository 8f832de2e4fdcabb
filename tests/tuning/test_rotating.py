"""tuning: slices that judge in turn never judge what was learned from them; the verdict is the mean over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.tuning.candidate import candidate
from npubake.tuning.judging import Judge, Score
from npubake.tuning.learner import Learner
from npubake.tuning.rotating import TURNS, Rotation, further_splits
from npubake.tuning.settings import TuneSettings
from npubake.tuning.simulation import Simulator
from npubake.tuning.splitting import Split, split_samples
from npubake.tuning.steps import tune
from npubake.tuning.trials import Bench, Standing
from tests.tuning.networks import Prepared, pictures, prepare, write_samples

COUNT = 16


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("rotating"), count=COUNT)


class Watched(Learner):
    """Notes the examples that each learning sees."""

    seen: list[tuple[int, ...]]

    def learn(self, before: Any, indices: Sequence[int], *rest: Any) -> Any:
        self.seen.append(tuple(indices))
        return super().learn(before, indices, *rest)


def test_each_example_judges_once_and_is_learned_from_in_all_other_turns(prepared: Prepared) -> None:
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        first = split_samples(samples, 0.25)
        splits = [first, *further_splits(samples, first)]
    assert len(splits) == TURNS
    assert sorted(index for each in splits for index in each.judged) == list(range(COUNT))
    for each in splits:
        assert sorted((*each.judged, *each.learn)) == list(range(COUNT))


@pytest.mark.parametrize(("judging", "turns"), [(8, 1), (10, 1), (12, 0)])
def test_no_turn_is_made_of_less_than_half_the_examples_that_judge(
    prepared: Prepared, judging: int, turns: int
) -> None:
    first = Split(learn=tuple(range(judging, COUNT)), judged=tuple(range(judging)))
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        assert further_splits(samples, first) == [Split(learn=first.judged, judged=first.learn)] * turns


def test_similar_examples_never_judge_what_was_learned_from_them(tmp_path: Path) -> None:
    """Eight pictures, four times."""
    write_samples(tmp_path / "samples.npz", pictures(8) * 4)
    with SampleSet.open(tmp_path / "samples.npz") as samples:
        splits = further_splits(samples, split_samples(samples, 0.25))
    assert len(splits) == TURNS - 1
    for each in splits:
        assert not {index % 8 for index in each.judged} & {index % 8 for index in each.learn}


def test_the_verdict_is_the_mean_of_slices_that_were_not_learned_from(prepared: Prepared) -> None:
    """Against scores taken here, of candidates rounded here from each turn's examples."""
    begin = prepared.start(lane="a16w8")
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        first = split_samples(samples, 0.25)
        turns = further_splits(samples, first)
        judge = Judge.of(begin.model, begin.subject.summary, samples, first.judged, 1)
        bench = Bench(judge=judge, threads=1, judging=True)
        learner = Watched(samples=samples, threads=1)
        learner.seen = []
        plain = candidate(begin)
        groups = frozenset(plain.layers)
        how = learner.how(groups, groups, {})
        rounded, _ = learner.learn(plain, first.learn, "float", how)
        old, new = bench.stand(plain), bench.stand(rounded)
        learner.seen.clear()
        found = Rotation(bench=bench, learner=learner, model=begin.model, turns=turns).verdict(
            old, (), new, (("float", how),)
        )
        assert learner.seen == [turn.learn for turn in turns]
        gains = [_decibels(judge, new) - _decibels(judge, old)]
        for turn in turns:
            other = judge.on(begin.model, samples, turn.judged, 1)
            made, _ = Learner(samples=samples, threads=1).learn(plain, turn.learn, "float", how)
            gains.append(_decibels(other, bench.stand(made)) - _decibels(other, old))
    assert found.slices == len(gains) == TURNS
    assert found.gain == pytest.approx(np.mean(gains), abs=0.02)
    assert found.loss == pytest.approx(-found.gain, abs=0.02)  # there is one output


def test_what_an_output_far_above_the_worst_loses_is_left_out_as_on_one_slice(prepared: Prepared) -> None:
    begin = candidate(prepared.start())
    old, new = (
        Standing(candidate=begin, score=Score(decibels=decibels))
        for decibels in ({"far above": 50.0, "worst": 20.0}, {"far above": 45.0, "worst": 23.0})
    )
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        judge = Judge.of(begin.start.model, prepared.summary, samples, (0, 1), 1)
        learner, bench = Learner(samples=samples, threads=1), Bench(judge=judge, threads=1, judging=True)
        verdict = Rotation(bench=bench, learner=learner, model=begin.start.model, turns=()).verdict(old, (), new, ())
    assert (verdict.gain, verdict.loss, verdict.slices) == (-1.0, -3.0, 1)


def _decibels(judge: Judge, standing: Standing) -> float:
    """Mean over the judged tensors of 10 log10(signal / noise), from values alone."""
    made = standing.candidate
    simulator = Simulator(made.simulated, judge.tensors, 1, made.simulated_constants())
    values = [simulator.run(feeds, made.forms()) for feeds in judge.feeds]
    found = []
    for tensor in judge.tensors:
        wanted = np.stack([entry[tensor] for entry in judge.references]).astype(np.float64)
        noise = wanted - np.stack([entry[tensor] for entry in values])
        found.append(10 * np.log10(np.square(wanted).sum() / np.square(noise).sum()))
    return float(np.mean(found))


def test_level_best_asks_other_slices_where_one_leaves_a_doubt(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reasons(level: str) -> list[str]:
        begin = prepared.start()
        groups = [group.name for group in prepared.summary.groups]
        settings = TuneSettings.from_params({"tuning": {"level": level}}, groups, (), begin.matched)
        with SampleSet.open(prepared.folder / "samples.npz") as samples:
            made = tune([begin], samples, settings, 1)
        return [trial["why"] for trial in made.record["trials"] if "mean of 4 slices" in trial["why"]]

    monkeypatch.setattr("npubake.tuning.steps.DOUBTFUL_DB", 100.0)
    assert reasons("best")
    assert not reasons("default")
    monkeypatch.setattr("npubake.tuning.steps.DOUBTFUL_DB", 0.0)
    assert not reasons("best")
