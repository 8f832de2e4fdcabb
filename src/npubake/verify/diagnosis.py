"""verify: what a failing gate says: every failing figure, who is suspected, what to do first, and the evidence for it.

Figures of the gate's boundary and of those before it in, one paragraph out. Pure; no model, no samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from npubake.errors import Fault, GateError
from npubake.verify.gates import BOUNDARIES, BOXES, UNITS, Check, Gate

_SHOWN = 3  # tensors and outputs of one list


def refuse_failures(
    gate: Gate,
    checks: Sequence[Check],
    figures: Sequence[Mapping[str, Any]],
    evidence: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Raise GateError where a check failed: one Fault for the boundary; its ``facts`` hold every check.

    evidence: figures of the boundaries before this one, in the order of the road.
    """
    failed = [check for check in checks if not check.passed]
    if not failed:
        return
    earlier = [_Earlier(gate, entry, failed) for entry in evidence]
    suspect, action = _not_finite(gate, failed, figures) or _suspect(gate, earlier)
    parts = [f"suspected: {suspect}; first: {action}", *(text for one in earlier if (text := one.text()))]
    parts += [_origins(entry) for entry in figures if entry.get("tensors")]
    named = zip(figures, gate.parts or ("",) * len(figures), strict=True)
    model = "float model as it was compiled" if gate.boundary == "converted" else "QDQ model"
    parts += [_agreement(entry["agreement"], model, part) for entry, part in named if entry.get("agreement")]
    fault = Fault(what="; ".join(_sentences(failed)), where=f"gate {gate.boundary}", hint="; ".join(parts))
    raise GateError(fault, facts={"checks": [check.to_json() for check in checks]})


def _not_finite(gate: Gate, failed: Sequence[Check], figures: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Suspect and action where NaN or Inf came up behind the model as it was given: it may make them itself."""
    known = BOUNDARIES["optimized"]
    if (gate.boundary, gate.suspect, gate.action) != ("optimized", known.suspect, known.action):
        return None
    lost = {check.output for check in failed if check.value is None}
    outputs = [found for entry in figures for name, found in entry["outputs"].items() if name in lost]
    if not outputs:
        return None
    where = outputs[0].get("worst_example") or "the example"
    return (
        "the model itself, where its float outputs are not finite (NaN or Inf); else optimize",
        f"run the original model on {where} and look at what computes the first tensor that is not finite",
    )


class _Earlier:
    """Another boundary's figures of the outputs that failed here, by thresholds of the same kind as the gate's own."""

    def __init__(self, gate: Gate, figures: Mapping[str, Any], failed: Sequence[Check]) -> None:
        self.boundary: str = figures["boundary"]
        whole = gate.boundary == "product" or any(check.figure == BOXES for check in failed)
        wanted = set(figures["outputs"]) if whole else {check.output for check in failed}
        self._found = {name: found for name, found in figures["outputs"].items() if name in wanted}
        own = {name: value for name, value in gate.thresholds.items() if name in UNITS and name != "max_abs"}
        self._thresholds = own or BOUNDARIES[self.boundary].thresholds

    @property
    def passed(self) -> bool:
        """Whether every output would pass."""
        return not self._short()

    def text(self) -> str:
        """The figures, worst output first, and the verdict; '' where the boundary knows none of the outputs."""
        worst = sorted(self._found.items(), key=lambda item: _low(item[1]["sqnr_db"]))
        if not worst:
            return ""
        shown = ", ".join(f"{name!r} {_figures(found)}" for name, found in worst[:_SHOWN])
        more = f" and {len(worst) - _SHOWN} outputs more" if len(worst) > _SHOWN else ""
        limits = ", ".join(f"{name} {value:g}{UNITS[name]}" for name, value in sorted(self._thresholds.items()))
        verdict = "passes" if self.passed else "falls short too"
        return f"boundary {self.boundary} {verdict} (by {limits}): {shown}{more}"

    def _short(self) -> list[str]:
        limits = self._thresholds.items()
        return [
            name for name, found in self._found.items() if any(_low(found[figure]) < limit for figure, limit in limits)
        ]


def _suspect(gate: Gate, earlier: Sequence[_Earlier]) -> tuple[str, str]:
    """The first boundary that falls short names suspect and action; where all pass, what remains. A recipe's own words
    stand.
    """
    known = BOUNDARIES[gate.boundary]
    if not earlier or (gate.suspect, gate.action) != (known.suspect, known.action):
        return gate.suspect, gate.action
    short = next((one.boundary for one in earlier if not one.passed), None)
    blamed = known if short is None else BOUNDARIES[short]
    return blamed.alone or (blamed.suspect, blamed.action)


def _origins(figures: Mapping[str, Any]) -> str:
    """Where the error arises: in the order of computation, tensors that are worse (SQNR and cosine) than all before
    them, from the first that is as bad as the worst output.
    """
    level = min((_low(found["sqnr_db"]) for found in figures["outputs"].values()), default=-math.inf)
    lowest, cosine = math.inf, math.inf
    found = []
    for tensor in sorted(figures["tensors"], key=lambda entry: entry["order"]):
        sqnr, alike = _low(tensor["sqnr_db"]), _low(tensor["cosine"])
        if sqnr < lowest and alike < cosine and sqnr <= level:
            before = "" if math.isinf(lowest) else f", {lowest:.1f} dB or better before it"
            found.append(f"{tensor['name']} ({_figures(tensor)}{before})")
        lowest, cosine = min(lowest, sqnr), min(cosine, alike)
    if not found:
        worst = [f"{tensor['name']} ({_figures(tensor)})" for tensor in figures["tensors"][:_SHOWN]]
        return f"none inside stands out, so the output itself is suspect; lowest SQNR inside: {', '.join(worst)}"
    return f"worst tensors inside, where each is worse than all before it: {', '.join(found[:_SHOWN])}"


def _agreement(agreement: Mapping[str, Any], model: str, part: str) -> str:
    """How the compiled artifact (part: of several) in its emulator differs from its model, worst output first."""
    worst = sorted(agreement["outputs"].items(), key=lambda item: _low(item[1]["sqnr_db"]))[:_SHOWN]
    shown = ", ".join(f"{name!r} {_figures(found)}" for name, found in worst)
    return f"emulator{f' ({part})' if part else ''} against the {model} on the same examples: {shown}"


def _low(value: float | None) -> float:
    """NaN (null) is worse than any number."""
    return -math.inf if value is None else value


def _figures(found: Mapping[str, Any]) -> str:
    cosine, sqnr = (
        "NaN" if found[name] is None else form.format(found[name])
        for name, form in (("cosine", "{:.5g}"), ("sqnr_db", "{:.1f} dB"))
    )
    return f"cosine {cosine}, SQNR {sqnr}"


def _sentences(failed: Iterable[Check]) -> Iterable[str]:
    """One for each output, with all its failing figures."""
    by_output: dict[str, list[Check]] = {}
    for check in failed:
        by_output.setdefault(check.label, []).append(check)
    for output, checks in by_output.items():
        if checks[0].detail is not None:
            yield _drop(checks[0], checks[0].detail)
        else:
            yield f"output {output!r}: {' and '.join(map(_sentence, checks))}"


def _drop(check: Check, detail: Mapping[str, float]) -> str:
    sure = f"at least {detail['lower']:.4f} with {detail['confidence']:.0%} confidence"
    return f"{check.output} drops by {check.value:.4f} ({sure}), {check.threshold} is allowed"


def _sentence(check: Check) -> str:
    unit = UNITS.get(check.figure, "")
    value = "NaN" if check.value is None else f"{check.value:.6g}{unit}"
    side = "above" if check.figure == "max_abs" else "below"
    return f"{check.figure} is {value}, {side} {check.threshold:g}{unit}"
