"""tuning: trials. A candidate is scored against the best one so far and kept only if it gains; all are written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from npubake.tuning.candidate import Candidate
from npubake.tuning.judging import Judge, Score
from npubake.tuning.simulation import Simulator

GAIN_DB = 0.1  # a smaller one is within what another slice would answer
LOSS_DB = 1.0  # of one output that counts (``Score.worst_loss``)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One step that was tried. before, after: dB on the unseen slice by output, None where nothing could be judged."""

    step: str
    start: str
    settings: Mapping[str, Any]
    before: Mapping[str, float] | None
    after: Mapping[str, float] | None
    kept: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A candidate and what it scored; None where nothing can be judged."""

    candidate: Candidate
    score: Score | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """gain: mean over ``slices`` of what a step won, in dB; loss: of these means, that of the output that loses most
    (``Score.worst_loss``).
    """

    gain: float
    loss: float
    slices: int


@dataclass(slots=True, eq=False)
class Bench:
    """Where candidates are scored. judging: False keeps every step that is asked for, and tries no other."""

    judge: Judge
    threads: int
    judging: bool
    trials: list[Trial] = field(default_factory=list)
    _opened: list[tuple[Candidate, Simulator]] = field(default_factory=list)

    def simulator(self, candidate: Candidate) -> Simulator:
        """The candidate's session; the last two stay open: the best candidate's, and that of the one held to it."""
        for known, simulator in self._opened:
            if known is candidate:
                return simulator
        made = Simulator(candidate.simulated, self.judge.tensors, self.threads, candidate.simulated_constants())
        self._opened = [*self._opened[-1:], (candidate, made)]
        return made

    def stand(self, candidate: Candidate) -> Standing:
        """Score a candidate by itself."""
        score = self.judge.score(self.simulator(candidate), candidate.forms()) if self.judging else None
        return Standing(candidate=candidate, score=score)

    def gains(self, best: Standing, proposal: Standing, least: float = GAIN_DB) -> bool:
        """Whether ``compare`` would keep ``proposal``; nothing is written down."""
        return self._verdict(best.score, proposal.score, least)[0]

    def compare(
        self, best: Standing, proposal: Standing, step: str, settings: Mapping[str, Any], least: float = GAIN_DB
    ) -> Standing:
        """The better of the two; the trial is written down. least: dB that the proposal must win."""
        kept, why = self._verdict(best.score, proposal.score, least)
        self._write(best, proposal, step, settings, (kept, why))
        return proposal if kept else best

    def decide(
        self, best: Standing, proposal: Standing, step: str, settings: Mapping[str, Any], verdict: Verdict
    ) -> Standing:
        """As ``compare``, by a verdict of several slices."""
        kept, why = _decided(verdict.gain, verdict.loss, GAIN_DB)
        self._write(best, proposal, step, settings, (kept, f"{why}, mean of {verdict.slices} slices"))
        return proposal if kept else best

    def pass_over(self, best: Standing, proposal: Standing, step: str, settings: Mapping[str, Any], why: str) -> None:
        """Write down a trial that is not kept, whatever it gains here."""
        gain = self._verdict(best.score, proposal.score, 0.0)[1]
        self._write(best, proposal, step, settings, (False, f"{gain}; {why}"))

    def skip(self, step: str, start: str, why: str) -> None:
        """Write down a step that was not tried."""
        self.trials.append(Trial(step=step, start=start, settings={}, before=None, after=None, kept=False, why=why))

    def _write(
        self, best: Standing, proposal: Standing, step: str, settings: Mapping[str, Any], verdict: tuple[bool, str]
    ) -> None:
        self.trials.append(
            Trial(
                step=step,
                start=proposal.candidate.start.name,
                settings=dict(settings),
                before=None if best.score is None else best.score.decibels,
                after=None if proposal.score is None else proposal.score.decibels,
                kept=verdict[0],
                why=verdict[1],
            )
        )

    def _verdict(self, before: Score | None, after: Score | None, least: float) -> tuple[bool, str]:
        if before is None or after is None:
            return True, "asked for, not judged"
        return _decided(after.gain(before), after.worst_loss(before), least)

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(trial) for trial in self.trials]


def _decided(gain: float, loss: float, least: float) -> tuple[bool, str]:
    if gain < least:
        return False, f"gains {gain:+.2f} dB, less than {least:g}"
    if loss > LOSS_DB:
        return False, f"gains {gain:+.2f} dB, but one output loses {loss:.2f}"
    return True, f"gains {gain:+.2f} dB"
