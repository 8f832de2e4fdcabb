"""tuning: the method of calibration where nobody named one. Tensors with a method of their own keep it.

``calibrate`` reads ``auto`` as ``mse``. Which method serves a network depends on whether its rare large values matter:
between the three that are tried lie 4 dB on a recogniser of text, 6 dB on the scores of a detector. Ranges are inputs
of the simulation, so each method is first scored by its scales alone; the best is then made as a build would make it,
and where it does not hold, the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from npubake.quant.assign import Assignment
from npubake.quant.request import Request, Settings
from npubake.quant.thresholds import Threshold
from npubake.tuning.candidate import Candidate, Start, candidate
from npubake.tuning.judging import Judge, Score
from npubake.tuning.simulation import form_of
from npubake.tuning.trials import Bench, Standing

STEP = "calibration_method"
# What another method must win over ``mse``, as the mean over two slices of examples: one slice of eight shows 0.2 dB
# where 32 show a loss of 1.8. And a pooled gain may hang on one example (2.8 dB where new inputs lose 5): the mean of
# the examples' own gains must be one, too.
LEAST_DB = 0.5
TRIED: tuple[Threshold, ...] = (  # beside ``mse``, which stands already
    Threshold(method="percentile", percentile=0.99999),
    Threshold(method="minmax"),
)


def best_method(
    bench: Bench, stands: Standing, finished: Callable[[Candidate], Candidate], second: Callable[[], Judge]
) -> Standing:
    """``stands`` (made with ``auto``), or the same with a method that gains on the unseen slice and on another.

    finished: gives a candidate of another method the biases that ``stands`` has; second: a judge of other examples.
    """
    start = stands.candidate.start
    if start.request.loaded is not None or not left_open(start.request):
        return stands
    scored: list[tuple[Standing, Threshold]] = []
    for threshold in TRIED:
        other = with_method(start, threshold)
        made = other.assigned(())
        if made.parameters.tensors != stands.candidate.parameters.tensors:
            scored.append((_by_scales(bench, stands, other, made, finished), threshold))
    scored.sort(key=lambda entry: entry[0].score.mean if entry[0].score else 0.0, reverse=True)
    others = cache(second)
    for place, (standing, threshold) in enumerate(scored):
        found = _tried(bench, stands, (standing, threshold), finished, others)
        if found is not stands:
            for left, passed in scored[place + 1 :]:
                bench.pass_over(stands, left, STEP, _shown(passed), f"{threshold.method} gives more")
            return found
    return stands


def _tried(
    bench: Bench,
    stands: Standing,
    scored: tuple[Standing, Threshold],
    finished: Callable[[Candidate], Candidate],
    second: Callable[[], Judge],
) -> Standing:
    """The method made as a build would make it, where it gains by its scales, so made, and on other examples, too."""
    best, threshold = scored
    if not bench.gains(stands, best):
        return bench.compare(stands, best, STEP, _shown(threshold))
    best = bench.stand(finished(candidate(best.candidate.start)))
    pooled, typical = _gains(bench, stands, best, second())
    if pooled < LEAST_DB or typical <= 0.0:
        why = f"{pooled:+.2f} dB with other examples beside these, {typical:+.2f} dB in the mean of single examples"
        bench.pass_over(stands, best, STEP, _shown(threshold), why)
        return stands
    return bench.compare(stands, best, STEP, _shown(threshold))


def _gains(bench: Bench, before: Standing, after: Standing, second: Judge) -> tuple[float, float]:
    """Gain in dB: the mean of both slices' pooled ones, and the mean over all examples of each one's own."""
    pooled, single = list[float](), list[float]()
    for judge in (bench.judge, second):
        old, new = (_score(bench, each, judge) for each in (before, after))
        pooled.append(new.gain(old))
        for one, other in zip(old.examples, new.examples, strict=True):
            single.append(judge.pooled([other]).gain(judge.pooled([one])))
    return sum(pooled) / len(pooled), sum(single) / len(single)


def _score(bench: Bench, standing: Standing, judge: Judge) -> Score:
    if judge is bench.judge and standing.score is not None:
        return standing.score
    return judge.score(bench.simulator(standing.candidate), standing.candidate.forms())


def with_method(start: Start, threshold: Threshold) -> Start:
    """``start`` with the method of ``threshold`` wherever its request says ``auto``: the explicit request."""

    def of_override(settings: Settings) -> Settings:
        if settings.method != "auto":
            return settings
        percentile = threshold.percentile if settings.percentile is None else settings.percentile
        return replace(settings, method=threshold.method, percentile=percentile)

    request = start.request
    whole = request.threshold
    if whole.method == "auto":
        whole = replace(whole, method=threshold.method, percentile=threshold.percentile)
    settings = tuple(of_override(entry) for entry in request.settings)
    return replace(start, request=replace(request, threshold=whole, settings=settings), given=None)


def left_open(request: Request) -> bool:
    """True where the recipe, or a layer override, leaves the method to ``tune``."""
    return request.threshold.method == "auto" or any(entry.method == "auto" for entry in request.settings)


def _by_scales(
    bench: Bench, stands: Standing, start: Start, made: Assignment, finished: Callable[[Candidate], Candidate]
) -> Standing:
    """The score of other activation scales in the session of ``stands``; where other tensors or groups are in integers
    than there, that of the whole candidate.
    """
    known, entries = stands.candidate, made.parameters
    kinds = [{name: group.precision for name, group in each.groups.items()} for each in (known.parameters, entries)]
    if kinds[0] != kinds[1] or not entries.tensors.keys() >= known.simulated.forms.keys():
        return bench.stand(finished(candidate(start)))
    forms = {name: form_of(entries.tensors[name]) for name in known.simulated.forms}
    score = bench.judge.score(bench.simulator(known), forms)
    return Standing(candidate=replace(known, start=start, assignment=made), score=score)


def _shown(threshold: Threshold) -> dict[str, Any]:
    shown: dict[str, Any] = {"method": threshold.method}
    return {**shown, "percentile": threshold.percentile} if threshold.method == "percentile" else shown
