"""Gates: thresholds, NaN, the product's interval, and what a failure says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npubake.errors import GateError, StageError
from npubake.verify.evidence import Hits
from npubake.verify.gates import BOUNDARIES, Gate, judge, refuse_failures


def figures(cosine: float | None = 1.0, sqnr: float | None = 50.0, **more: Any) -> dict[str, Any]:
    entry = {"cosine": cosine, "sqnr_db": sqnr, "max_abs": 0.1, **more}
    return {"kind": "tensors", "outputs": {"scores": entry}, "tensors": [{"name": "/a/Conv"}, {"name": "/b/Mul"}]}


def product(right: Any) -> dict[str, Any]:
    names = tuple(map(str, range(len(right))))
    evidence = Hits(names=names, right=tuple(bool(value) for value in right)).to_json()
    return {"kind": "product", "metric": "top1", "examples": len(right), "evidence": evidence}


def outcome(params: dict[str, Any], *found: dict[str, Any]) -> list[bool]:
    gate = Gate.from_params(params)
    checks = judge(gate, found)
    if all(check.passed for check in checks):
        refuse_failures(gate, checks, found)
    else:
        with pytest.raises(GateError):
            refuse_failures(gate, checks, found)
    return [check.passed for check in checks]


@pytest.mark.parametrize(
    ("boundary", "cosine", "sqnr", "passed"),
    [
        ("optimized", 0.9999, None, [True]),
        ("optimized", 0.99989, None, [False]),
        ("quantized", 0.99, 20.0, [True, True]),
        ("quantized", 0.98999, 20.0, [False, True]),
        ("quantized", 0.99, 19.99, [True, False]),
        ("quantized", None, None, [False, False]),
    ],
)
def test_the_starting_thresholds_of_the_seed_documents(
    boundary: str, cosine: float | None, sqnr: float | None, passed: list[bool]
) -> None:
    assert outcome({"boundary": boundary}, figures(cosine, sqnr)) == passed


def test_a_recipe_has_its_own_thresholds() -> None:
    assert outcome({"boundary": "optimized", "thresholds": {"sqnr_db": 60}}, figures()) == [False]
    assert outcome({"boundary": "optimized", "thresholds": {"max_abs": 0.05}}, figures()) == [False]
    assert outcome({"boundary": "optimized", "thresholds": {"max_abs": 0.1}}, figures()) == [True]


def test_a_failure_names_boundary_output_figure_suspect_and_first_action() -> None:
    gate = Gate.from_params({"boundary": "quantized"})
    found = [figures(0.5, None)]
    with pytest.raises(GateError) as caught:
        refuse_failures(gate, judge(gate, found), found)
    first, second = caught.value.faults
    assert first.where == "gate quantized"
    for word in ("'scores'", "cosine", "0.5", "0.99"):
        assert word in first.what
    assert "NaN" in second.what
    for word in (BOUNDARIES["quantized"].suspect, BOUNDARIES["quantized"].action, "/a/Conv", "/b/Mul"):
        assert word in first.hint


def test_every_boundary_knows_suspect_and_action() -> None:
    assert {"optimized", "calibrated", "ptq", "quantized", "deployable", "product"} <= BOUNDARIES.keys()
    assert all(entry.suspect and entry.action and entry.thresholds for entry in BOUNDARIES.values())


def test_a_recipe_may_word_them_itself() -> None:
    gate = Gate.from_params({"boundary": "ptq", "suspect": "the moon", "action": "wait"})
    assert (gate.suspect, gate.action) == ("the moon", "wait")


def test_figures_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(StageError):
        Gate.from_params({"boundary": "optimised"})
    with pytest.raises(StageError):
        judge(Gate.from_params({"boundary": "ptq", "thresholds": {"cosin": 1}}), [figures()])
    with pytest.raises(StageError):
        judge(Gate.from_params({"boundary": "ptq"}), [{"kind": "tensors", "outputs": {}}])
    with pytest.raises(StageError):
        judge(Gate.from_params({"boundary": "product"}), [product([1, 1])])


def test_a_proven_drop_fails_noise_warns_and_nothing_passes() -> None:
    params = {"boundary": "product", "thresholds": {"max_drop": 0.01}}
    full = np.ones(100)
    lost, unlucky = full.copy(), full.copy()
    lost[:20] = 0
    unlucky[:2] = 0
    assert outcome(params, product(full), product(lost)) == [False]
    assert outcome(params, product(full), product(unlucky)) == [True]
    gate = Gate.from_params(params)
    (check,) = judge(gate, [product(full), product(unlucky)])
    assert check.value == pytest.approx(0.02)
    assert "noise" in check.warning
    (quiet,) = judge(gate, [product(full), product(full)])
    assert (quiet.passed, quiet.warning, quiet.value) == (True, "", 0.0)
    (gain,) = judge(gate, [product(lost), product(full)])
    assert (gain.passed, gain.warning) == (True, "")


def test_confidence_decides_how_sure_a_drop_must_be() -> None:
    full, unlucky = np.ones(100), np.ones(100)
    unlucky[:4] = 0
    found = (product(full), product(unlucky))
    assert outcome({"boundary": "product", "thresholds": {"max_drop": 0.01, "confidence": 0.99}}, *found) == [True]
    assert outcome({"boundary": "product", "thresholds": {"max_drop": 0.01, "confidence": 0.5}}, *found) == [False]
