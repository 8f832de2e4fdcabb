"""tuning: the order of steps. Float graphs and samples enter, the best quantised model that was found leaves.

Narrow layers are rounded first, from float activations, which no choice of bits changes; then bits are chosen, seen
with those weights; then the rest is rounded: a tensor that is lifted afterwards spoils what rounding in order of
execution paid back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from npubake.calibration.samples import SampleSet
from npubake.graph.summary import WEIGHTED_KINDS
from npubake.tuning.biases import correctable, corrected_from_statistics
from npubake.tuning.candidate import Candidate, Start, candidate
from npubake.tuning.judging import Judge
from npubake.tuning.learner import NARROW, NARROW_POSITIONS, Learned, Learner, Way
from npubake.tuning.lifting import choose_lifts, residual_streams
from npubake.tuning.methods import best_method
from npubake.tuning.rotating import Rotation, further_splits
from npubake.tuning.rounding import Rounding
from npubake.tuning.searching import SEARCHED, with_searched_scales
from npubake.tuning.settings import TuneSettings
from npubake.tuning.splitting import LEAST_SAMPLES, Split, split_samples
from npubake.tuning.teaching import SCALES, Teaching, taught, unteachable
from npubake.tuning.trials import Bench, Standing

# What is learned in order of execution follows the errors that the layers before make on these very examples: half a dB
# on the unseen slice went with 2 dB lost on photographs from elsewhere.
EXECUTION_GAIN_DB = 1.0
DOUBTFUL_DB = 2.0  # on one slice: below, level best asks the others, too


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """candidate: what was chosen; record: JSON facts: what was tried, what it gave, what was kept."""

    candidate: Candidate
    record: dict[str, Any]


def tune(
    starts: Sequence[Start],
    samples: SampleSet,
    settings: TuneSettings,
    threads: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Tuned:
    """Try the steps of the level and those asked for. starts: the optimised graph, then its transformation if any."""
    parts = split_samples(samples, settings.held_out)
    first = starts[0]
    wanted = parts.judged if settings.judge else ()
    others = [start.subject.summary for start in starts[1:]]
    judge = Judge.of(first.model, first.subject.summary, samples, wanted, threads, others)
    bench = Bench(judge=judge, threads=threads, judging=judge.able)
    learner = Learner(samples=samples, threads=threads)
    run = _Run(bench=bench, learner=learner, parts=parts, settings=settings, starts=starts)
    free = [run.start, run.round_narrow, run.lift, run.search, run.round]
    stages = free if run.free else [run.start, run.search, run.round]
    layers = len(run.to_teach)
    for done, step in enumerate(stages):
        progress(done, len(stages) + layers)
        step()
    if layers:
        run.teach(lambda done: progress(min(len(stages) + done, len(stages) + layers), len(stages) + layers))
    run.learn_from_all()
    return Tuned(candidate=run.best.candidate, record=_record(run))


@dataclass(slots=True, eq=False)
class _Run:
    """The best candidate so far, while steps are tried."""

    bench: Bench
    learner: Learner
    parts: Split
    settings: TuneSettings
    starts: Sequence[Start]
    _best: Standing | None = None
    _learned: Learned = ()  # how the best candidate's weights, then its biases, were learned
    _taught: Teaching | None = None  # likewise by ``mod``, after that
    _turns: Sequence[Split] | None = None  # made when they are first asked for
    refitted: int = 0

    @property
    def best(self) -> Standing:
        assert self._best is not None  # ``start`` comes first
        return self._best

    @property
    def free(self) -> bool:
        """True where steps may be tried unasked: there is a judge."""
        return self.bench.judging and self.settings.level != "none"

    def start(self) -> None:
        """The better float graph, each with its biases corrected where that gains; then the method of its ranges."""
        for begin in self.starts:
            if begin is not self.starts[0] and not (self.free or self.settings.transformed):
                self.bench.skip("equivalent_transformation", begin.name, "not asked for, and nothing can be judged")
                continue
            plain = self.bench.stand(candidate(begin))
            corrected = self._with_biases(plain)
            if self._best is None:
                self._best = corrected
            else:
                self._best = self.bench.compare(self._best, corrected, "equivalent_transformation", {})
        if self.free:
            self._best = self._with_method(self.best)

    def lift(self) -> None:
        """16 bits for the worst activations, and for residual streams that call for it."""
        most = self.settings.max_int16
        if most <= 0:
            return
        before = self.best.candidate
        chosen = choose_lifts(self.bench, self.best, most, thorough=self.settings.level == "best")
        streams = residual_streams(self.bench, self.best) if not self.settings.limited else []
        chosen += [entry for entry in streams if entry not in chosen]
        if not chosen:
            self.bench.skip("int16", before.start.name, "no activation in 16 bits gains on the unseen slice")
            return
        proposal = self._biased_like(before, candidate(before.start, [entry.group for entry in chosen]))
        proposal = self._learned_like_before(proposal)
        settings = {"tensors": [name for entry in chosen for name in entry.tensors]}
        self._best = self._compare(self.best, self.bench.stand(proposal), "int16", settings, self._learned)

    def round_narrow(self) -> None:
        """Narrow layers by their Hessian: most of what rounding all of them gains, for little."""
        choice, layers = self.settings.choices["hessian"], self.best.candidate.layers
        groups = choice.among([name for name, layer in layers.items() if layer.form.columns <= NARROW], free=True)
        if groups and not choice.asked:
            how = self.learner.how(groups, self._following & groups, {"positions": NARROW_POSITIONS})
            self._learn("hessian", "narrow", how, {"layers": len(groups), "activations": "float"})

    def search(self) -> None:
        """Weight scales by the error of the layer's output, where that is asked for."""
        choice, base = self.settings.choices["search_weight_scale"], self.best.candidate
        groups = choice.among(base.layers, free=False)
        if not groups:
            return
        plain = replace(base, constants={})
        moments = self.learner.moments(plain, self.parts.learn, self.learner.how(groups, frozenset(), {}))
        found = with_searched_scales(plain, moments, choice.settings.get("candidates", SEARCHED))
        for name in found.left:
            self.bench.skip("search_weight_scale", base.start.name, f"{name}: its weights have zero points")
        proposal = self.bench.stand(self._learned_like_before(self._biased_like(base, found.candidate)))
        settings = {**choice.settings, "saturated": found.saturated}
        self._best = self.bench.compare(self.best, proposal, "search_weight_scale", settings)

    def round(self) -> None:
        """Weights by their Hessian and biases that follow, from float activations and in order of execution."""
        best = self.free and self.settings.level == "best"
        choice = self.settings.choices["hessian"]
        layers = self.best.candidate.layers
        groups = choice.among(layers, free=best)
        if groups:
            asymmetric = bool(choice.settings.get("asymmetric", True))
            ways: tuple[Way, ...] = ("execution",) if asymmetric else ("float",)
            how = self.learner.how(groups, self._following, choice.settings)
            for way in ("float", "execution") if best and asymmetric else ways:
                self._learn("hessian", way, how, {**choice.settings, "activations": way})
        followed = bool(self._learned) and self._learned[-1][0] == "execution"  # biases have followed every layer
        allowed = self.settings.choices["bias_correction"].among(layers, free=True)  # not where the recipe says none
        if self._empirical or (best and allowed and not followed):
            asked = allowed if best else self._empirical
            how = self.learner.how(frozenset(), asked & layers.keys(), {})
            self._learn("bias_correction", "biases", how, {"how": "empirical", "activations": "execution"})

    @property
    def to_teach(self) -> frozenset[str]:
        """Weighted groups that ``mod`` is asked of."""
        weighted = [group.name for group in self.starts[0].subject.summary.groups if group.kind in WEIGHTED_KINDS]
        return self.settings.choices["mod"].among(weighted, free=False)

    def teach(self, progress: Callable[[int], None]) -> None:
        """MOD, from the best candidate's codes on, for the layers that the recipe names."""
        base, settings = self.best.candidate, self.settings.choices["mod"].settings
        for name, why in unteachable(base, self.to_teach).items():
            self.bench.skip("mod", base.start.name, f"{name}: {why}")
        how = Teaching.of(self.to_teach & base.layers.keys(), settings, self.bench.threads)
        feeds = self.learner.feeds(base, self.parts.learn)
        proposal = taught(base, feeds, how, partial(self._biased_like, base), progress)
        self._best = self.bench.compare(
            self.best, self.bench.stand(proposal), "mod", {**settings, "layers": len(how.groups)}
        )
        if self.best.candidate is proposal:
            self._taught = how

    def learn_from_all(self) -> None:
        """Once the judge has chosen how to round, round with the examples that judged among those learned from; not
        for narrow layers alone, whose few unknowns are known well enough.
        """
        learned = self._learned if any(way != "narrow" for way, _ in self._learned) else ()
        if not self.bench.judging or not (learned or self._taught):
            return
        made = self.best.candidate
        indices = (*self.parts.judged, *self.parts.learn)
        if learned:
            made, self.refitted = self.learner.again(made, indices, learned)
        if self._taught is not None:
            feeds = self.learner.feeds(made, indices)
            again = replace(self._taught, learn=self._taught.learn - SCALES)  # scales stay as they were judged
            made = taught(made, feeds, again, lambda same: same, lambda _done: None)
            self.refitted = len(feeds)
        self._best = replace(self.best, candidate=made)

    def _with_biases(self, plain: Standing) -> Standing:
        choice = self.settings.choices["bias_correction"]
        groups = choice.among(plain.candidate.layers, free=self.free) - self._empirical
        if not groups:
            return plain
        constants = corrected_from_statistics(plain.candidate, groups)
        if not constants:
            self.bench.skip("bias_correction", plain.candidate.start.name, "no layer has a bias to correct")
            return plain
        proposal = self.bench.stand(replace(plain.candidate, constants=constants))
        return self._compare(plain, proposal, "bias_correction", {"how": "analytic"}, ())

    def _with_method(self, stands: Standing) -> Standing:
        """The method of calibration where it is left open; biases that were no gain before are tried again with it."""
        chosen = best_method(self.bench, stands, partial(self._biased_like, stands.candidate), self._second_judge)
        if chosen is stands or chosen.candidate.constants:
            return chosen
        return self._with_biases(chosen)

    def _second_judge(self) -> Judge:
        """As many other examples as judge: for choices that learn nothing from single examples."""
        learn, count = self.parts.learn, len(self.parts.judged)
        others = learn[:: max(len(learn) // count, 1)][:count]
        return self.bench.judge.on(self.starts[0].model, self.learner.samples, others, self.bench.threads)

    def _biased_like(self, before: Candidate, proposal: Candidate) -> Candidate:
        """``proposal`` with the biases of the layers corrected that are in ``before``."""
        groups = frozenset(
            name
            for name, layer in before.layers.items()
            if correctable(layer) and layer.operand.bias_name in before.constants
        )
        biases = corrected_from_statistics(proposal, groups)
        return replace(proposal, constants={**proposal.constants, **biases})

    @property
    def _empirical(self) -> frozenset[str]:
        """Groups whose biases the recipe asks to be corrected from examples."""
        return self.settings.choices["bias_correction"].saying("empirical")

    @property
    def _following(self) -> frozenset[str]:
        """Groups whose biases follow the rounding of their weights."""
        return self.settings.choices["bias_correction"].among(self.best.candidate.layers, free=True)

    def _learn(self, step: str, way: Way, how: Rounding, settings: Mapping[str, Any]) -> None:
        """What is learned by ``way``, where it gains. Biases are learned on top of the rounding that was kept."""
        made, _ = self.learner.learn(self.best.candidate, self.parts.learn, way, how)
        proposal = self.bench.stand(made)
        learned = (*(self._learned if way == "biases" else ()), (way, how))
        if way == "execution":
            self._best = self.bench.compare(self.best, proposal, step, settings, EXECUTION_GAIN_DB)
        else:
            self._best = self._compare(self.best, proposal, step, settings, learned)
        if self._best is proposal:
            self._learned = learned

    def _compare(
        self, best: Standing, proposal: Standing, step: str, settings: Mapping[str, Any], learned: Learned
    ) -> Standing:
        """The better of the two; at level best other slices judge in turn where the first one leaves a doubt.

        learned: how the weights and biases of ``proposal`` were learned.
        """
        doubtful = best.score and proposal.score and abs(proposal.score.gain(best.score)) < DOUBTFUL_DB
        if not (doubtful and self.free and self.settings.level == "best"):
            return self.bench.compare(best, proposal, step, settings)
        if self._turns is None:
            self._turns = further_splits(self.learner.samples, self.parts)
        rotation = Rotation(bench=self.bench, learner=self.learner, model=self.starts[0].model, turns=self._turns)
        verdict = rotation.verdict(best, self._learned, proposal, learned)
        return self.bench.decide(best, proposal, step, settings, verdict)

    def _learned_like_before(self, proposal: Candidate) -> Candidate:
        """``proposal`` with the weights learned again, on its own grids, that the best candidate has learned."""
        return self.learner.again(proposal, self.parts.learn, self._learned, self.best.candidate)[0]


def _record(run: _Run) -> dict[str, Any]:
    """What was tried: the trials, the examples that judged, the tensors that were judged, what was kept."""
    bench, settings = run.bench, run.settings
    kept = [trial.step for trial in bench.trials if trial.kept]
    why = ""
    if not bench.judging:
        why = "judge: false" if not settings.judge else f"fewer than {LEAST_SAMPLES} examples, or no float output"
    return {
        "level": settings.level,
        "judged_on": list(run.parts.judged) if bench.judging else [],
        "judged_tensors": {name: list(several) for name, several in bench.judge.watched.items()},
        "unjudged": why,
        "trials": bench.to_json(),
        "kept": kept,
        "score": run.best.score and run.best.score.decibels,
        "learned_from_all": run.refitted,
        "lifted": list(run.best.candidate.lifted),
        "start": run.best.candidate.start.name,
    }
