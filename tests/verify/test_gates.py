"""Gates: thresholds, NaN, the product's interval, and what a failure says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npubake.errors import GateError, StageError
from npubake.verify.diagnosis import refuse_failures
from npubake.verify.evidence import Hits
from npubake.verify.gates import BOUNDARIES, Gate, judge


def figures(cosine: float | None = 1.0, sqnr: float | None = 50.0, **more: Any) -> dict[str, Any]:
    entry = {"cosine": cosine, "sqnr_db": sqnr, "max_abs": 0.1, **more}
    tensors = [tensor("/b/Mul", 1, 3.0, 0.6), tensor("/a/Conv", 0, 30.0, 0.999)]
    return {"kind": "tensors", "boundary": "calibrated", "outputs": {"scores": entry}, "tensors": tensors}


def tensor(name: str, order: int, sqnr: float | None, cosine: float | None) -> dict[str, Any]:
    return {"name": name, "order": order, "sqnr_db": sqnr, "cosine": cosine}


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
    (fault,) = caught.value.faults  # one paragraph a boundary, not one a figure
    assert fault.where == "gate quantized"
    for word in ("'scores'", "cosine", "0.5", "0.99", "NaN", "20 dB"):
        assert word in fault.what
    for word in (BOUNDARIES["quantized"].suspect, BOUNDARIES["quantized"].action):
        assert word in fault.hint


def test_a_failure_carries_all_its_checks_as_facts() -> None:
    gate, found = Gate.from_params({"boundary": "quantized"}), [figures(0.5, 50.0)]
    with pytest.raises(GateError) as caught:
        refuse_failures(gate, judge(gate, found), found)
    checks = caught.value.facts["checks"]
    assert [(check["figure"], check["value"], check["threshold"], check["passed"]) for check in checks] == [
        ("cosine", 0.5, 0.99, False),
        ("sqnr_db", 50.0, 20.0, True),
    ]


def failure(params: dict[str, Any], found: list[dict[str, Any]], evidence: list[dict[str, Any]]) -> str:
    gate = Gate.from_params(params)
    with pytest.raises(GateError) as caught:
        refuse_failures(gate, judge(gate, found), found, evidence)
    return caught.value.faults[0].hint


@pytest.mark.parametrize(("boundary", "model"), [("converted", "float model as it was"), ("compiled", "QDQ model")])
def test_the_agreement_names_the_model_that_was_compiled(boundary: str, model: str) -> None:
    agreement = {"outputs": {"scores": {"cosine": 0.5, "sqnr_db": 1.0}}}
    found = [{**figures(0.5, 1.0), "boundary": boundary, "agreement": agreement}]
    told = failure({"boundary": boundary}, found, [])
    assert f"emulator against the {model}" in told
    assert ("65504" in told) is (boundary == "converted")


@pytest.mark.parametrize(
    ("calibrated", "ptq", "suspect"),
    [
        (5.0, 60.0, f"suspected: {BOUNDARIES['calibrated'].suspect}"),
        (30.0, 5.0, f"suspected: {BOUNDARIES['ptq'].suspect}"),
        (30.0, 60.0, "suspected: quantize, or input preparation"),
    ],
)
def test_the_evidence_of_earlier_boundaries_names_the_suspect(calibrated: float, ptq: float, suspect: str) -> None:
    evidence = [figures(0.995, calibrated), {**figures(0.995, ptq), "boundary": "ptq"}]
    hint = failure({"boundary": "quantized"}, [figures(0.995, 4.0)], evidence)
    assert hint.startswith(suspect)
    short = "falls short too" if calibrated < 20 else "passes"
    assert (
        f"boundary calibrated {short} (by cosine 0.99, sqnr_db 20 dB): 'scores' cosine 0.995, SQNR {calibrated} dB"
        in hint
    )
    assert failure({"boundary": "quantized", "suspect": "the moon"}, [figures(0.9, 4.0)], evidence).startswith(
        "suspected: the moon"
    )


def test_values_that_are_not_finite_are_first_asked_of_the_model_itself() -> None:
    found = figures(None, None, worst_example="example 3 (a.png)")
    hint = failure({"boundary": "optimized"}, [found], [])
    assert hint.startswith("suspected: the model itself")
    assert "run the original model on example 3 (a.png)" in hint
    assert failure({"boundary": "optimized"}, [figures(0.5)], []).startswith("suspected: optimize")
    assert failure({"boundary": "optimized", "suspect": "the moon"}, [found], []).startswith("suspected: the moon")


def test_worst_tensors_are_those_where_the_error_arises() -> None:
    inside = [
        tensor("/after", 3, 5.0, 0.7),  # as bad as its input: nothing is lost here
        tensor("/culprit", 2, 5.0, 0.7),
        tensor("/constant", 4, 2.0, 0.99999),  # a low SQNR, but a cosine as good as its neighbours'
        tensor("/fine", 1, 30.0, 0.999),
    ]
    hint = failure({"boundary": "quantized"}, [{**figures(0.7, 6.0), "tensors": inside}], [])
    assert "all before it: /culprit (cosine 0.7, SQNR 5.0 dB, 30.0 dB or better before it)" in hint
    assert not any(name in hint for name in ("/after", "/constant", "/fine"))
    hint = failure({"boundary": "quantized"}, [{**figures(0.7, 1.0), "tensors": inside}], [])
    assert "the output itself is suspect" in hint


def test_what_calibration_lost_is_first_answered_by_the_whole_of_tuning() -> None:
    """Not by a method: the default tries them already, and one that is named keeps tuning from trying any."""
    assert "tuning: {level: best}" in BOUNDARIES["calibrated"].action


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


@pytest.mark.parametrize(
    ("between", "quantised", "warned"),
    [
        (26.6, 37.6, True),
        (24.5, 25.9, False),
        (50.0, 78.0, False),
        (39.9, 46.0, True),
        (None, 30.0, False),
        (26.6, None, False),
        (37.7, 300.0, False),
    ],
)
def test_an_artifact_that_differs_by_more_than_quantisation_passes_with_a_warning(
    between: float | None, quantised: float | None, warned: bool
) -> None:
    measured = figures(0.999, 25.0)
    measured["agreement"] = {"outputs": {"scores": {"sqnr_db": between, "quantised_sqnr_db": quantised}}}
    checks = judge(Gate.from_params({"boundary": "compiled"}), [measured])
    assert all(check.passed for check in checks)
    assert [check.figure for check in checks if check.warning] == (["sqnr_db"] if warned else [])
