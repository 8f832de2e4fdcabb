"""tuning: which activations take 16 bits. Classes of tensors that share a scale are lifted as one.

Ranked by the noise that each makes when it alone is quantised, then judged: the first one, two, four, ... together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.affine import tensor_parameters
from npubake.quant.assign import Subject
from npubake.quant.ranges import including_zero
from npubake.quant.sharing import SHARING_KINDS
from npubake.quant.tensor_ranges import wide_range
from npubake.tuning.candidate import Candidate
from npubake.tuning.judging import Score, noise_of, relative_noise
from npubake.tuning.ranking import worst_first
from npubake.tuning.simulation import Form, Simulator, form_of, untouched
from npubake.tuning.trials import Bench, Standing

MANY_RANKED, FEW_RANKED = 8, 1  # examples that rank: a ranking is no figure
FEW_JUDGED = 4
_NEAR_DB = 0.25  # fewer lifted tensors are taken where they cost no more than this
_STREAM_DB = 6.0  # what 16-bit residual streams must win to go beyond the number allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Liftable:
    """Tensors of one scale that 8 bits hold. group: a group that makes one of them; tensors: those with a quantiser;
    computed: how many of them a kernel computes (what a movement makes are the same values again).
    """

    group: str
    tensors: tuple[str, ...]
    computed: int


def liftable(candidate: Candidate) -> list[Liftable]:
    """All that could take 16 bits, in graph order: not the graph's inputs, nothing whose bits a person has chosen."""
    summary = candidate.start.subject.summary
    said = {
        name
        for settings, names in zip(candidate.start.request.settings, candidate.start.matched, strict=True)
        if settings.activation is not None or settings.output is not None
        for name in names
    }
    makers = summary.producer_group()
    shared = {name: members for members in candidate.assignment.record.shared_scales for name in members}
    found: dict[tuple[str, ...], Liftable] = {}
    for name in candidate.simulated.forms:
        members = shared.get(name, (name,))
        made = [makers[member].name for member in members if member in makers]
        if members in found or len(made) < len(members) or said.intersection(made):
            continue
        if candidate.parameters.tensors[name].dtype == "uint8":
            held = tuple(member for member in members if member in candidate.simulated.forms)
            computed = sum(makers[member].kind not in SHARING_KINDS for member in members)
            found[members] = Liftable(group=made[0], tensors=held, computed=max(computed, 1))
    return list(found.values())


def choose_lifts(bench: Bench, stands: Standing, most: int, *, thorough: bool) -> list[Liftable]:
    """At most ``most`` computed tensors, those that win most on the unseen slice; [] where none does.

    Not ``thorough``: ranked on the example that holds most of the noise, chosen on the four that hold most; as few
    tensors as come within 0.25 dB of the best, and none where all together do not win as much.
    """
    known = {entry.group: entry for entry in liftable(stands.candidate)}
    simulator, forms, places = _open(bench, stands)
    ranking = places[: MANY_RANKED if thorough else FEW_RANKED]
    noise = IsolatedNoise.of(bench, stands.candidate, simulator, ranking)
    names = worst_first(list(known), lambda several: noise(known, several), most)
    order = _within([known[name] for name in names], most)
    judged = None if thorough else places[:FEW_JUDGED]
    subject = stands.candidate.start.subject
    means = {0: _part(bench, stands, judged).mean}
    for size in reversed(_prefixes(len(order))):
        wide = wide_forms(order[:size], subject)
        means[size] = bench.judge.score(simulator, {**forms, **wide}, judged).mean
        if not thorough and size == len(order) and means[size] < means[0] + _NEAR_DB:
            return []
    best = max(means.values()) - (0.0 if thorough else _NEAR_DB)
    return order[: min(size for size, mean in means.items() if mean >= best)]


def residual_streams(bench: Bench, stands: Standing) -> list[Liftable]:
    """Sums that pass on to further sums, where 16 bits for all of them win more than 6 dB; else []."""
    summary = stands.candidate.start.subject.summary
    adds = {group.name: group for group in summary.groups if group.kind == "add" and len(group.inputs) == 2}
    read = {name for group in adds.values() for name in group.inputs}
    streams = [
        entry
        for entry in liftable(stands.candidate)
        if entry.group in adds and read.intersection(adds[entry.group].outputs)
    ]
    if not streams:
        return []
    simulator, forms, places = _open(bench, stands)
    judged = places[:FEW_JUDGED]
    wide = wide_forms(streams, stands.candidate.start.subject)
    after = bench.judge.score(simulator, {**forms, **wide}, judged)
    return streams if after.gain(_part(bench, stands, judged)) >= _STREAM_DB else []


def _open(bench: Bench, stands: Standing) -> tuple[Simulator, dict[str, Form], list[int]]:
    """The candidate's session, its forms, and the judging examples, those that hold most of its noise first."""
    assert stands.score is not None  # bits are chosen where there is a judge
    candidate = stands.candidate
    return bench.simulator(candidate), candidate.forms(), bench.judge.worst_first(stands.score)


def _part(bench: Bench, stands: Standing, places: Sequence[int] | None) -> Score:
    """The candidate's figures on some of the examples that it has been judged on."""
    assert stands.score is not None
    if places is None:
        return stands.score
    return bench.judge.pooled([stands.score.examples[place] for place in places])


def wide_forms(lifted: Sequence[Liftable], subject: Subject) -> dict[str, Form]:
    """The 16-bit forms of the tensors of ``lifted``, each class with the range of all its tensors and the margin."""
    makers, statistics = subject.summary.producer_group(), subject.statistics
    forms = {}
    for entry in lifted:
        ends = [statistics[name] for name in entry.tensors]
        span = including_zero(min(end.minimum for end in ends), max(end.maximum for end in ends))
        wide = wide_range(makers[entry.tensors[0]], span)
        form = form_of(tensor_parameters(wide, "int16", asymmetric=False))
        forms.update(dict.fromkeys(entry.tensors, form))
    return forms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsolatedNoise:
    """Noise at the judged outputs when only some tensors are quantised, relative to the outputs' energy."""

    bench: Bench
    simulator: Simulator
    quiet: Mapping[str, Form]
    forms: Mapping[str, Form]
    answers: Mapping[int, Mapping[str, NDArray[np.float32]]]

    @classmethod
    def of(cls, bench: Bench, candidate: Candidate, simulator: Simulator, places: Sequence[int]) -> IsolatedNoise:
        statistics = candidate.start.subject.statistics
        quiet = {name: untouched(statistics[name].absmax) for name in simulator.quantised}
        asked = [(bench.judge.feeds[place], quiet) for place in places]
        answers = dict(zip(places, simulator.run_each(asked, lambda _at, values: values), strict=True))
        return cls(bench=bench, simulator=simulator, quiet=quiet, forms=candidate.forms(), answers=answers)

    def __call__(self, known: Mapping[str, Liftable], several: Sequence[Sequence[str]]) -> list[float]:
        """The noise of each of several sets of groups."""
        places = list(self.answers)
        asked = [
            (self.bench.judge.feeds[place], self._alone(known[group] for group in groups))
            for groups in several
            for place in places
        ]
        made = self.simulator.run_each(asked, lambda at, values: self._noise(places[at % len(places)], values))
        return [sum(made[first : first + len(places)]) for first in range(0, len(made), len(places))]

    def _alone(self, chosen: Iterable[Liftable]) -> dict[str, Form]:
        return {**self.quiet, **{name: self.forms[name] for entry in chosen for name in entry.tensors}}

    def _noise(self, place: int, values: Mapping[str, NDArray[Any]]) -> float:
        total = 0.0
        for name, wanted in self.answers[place].items():
            energy = float(np.square(wanted.astype(np.float64)).sum())
            total += relative_noise(noise_of(wanted, values[name]), energy)
        return total


def _within(order: Sequence[Liftable], most: int) -> list[Liftable]:
    """Entries in order, those that would pass ``most`` computed tensors together left out."""
    taken: list[Liftable] = []
    for entry in order:
        if sum(one.computed for one in taken) + entry.computed <= most:
            taken.append(entry)
    return taken


def _prefixes(count: int) -> list[int]:
    """1, 2, 4, ... and ``count``."""
    sizes = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return [*sizes, count] if count else []
