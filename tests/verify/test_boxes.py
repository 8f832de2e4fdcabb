"""Boxes of two detectors that are the same: by class, IoU 0.9 and at most one partner each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npubake.errors import GateError, StageError
from npubake.verify.boxes import BoxAgreement, compare_boxes, match
from npubake.verify.detection import Detections
from npubake.verify.diagnosis import refuse_failures
from npubake.verify.gates import Gate, judge


def found(*boxes: tuple[float, float, float, float], classes: tuple[int, ...] | None = None) -> Detections:
    """Boxes in descending order of score."""
    return Detections(
        corners=np.array(boxes, np.float64).reshape(-1, 4),
        scores=np.linspace(0.9, 0.5, len(boxes)),
        classes=np.array(classes or (0,) * len(boxes), np.int64),
    )


def test_a_box_matches_the_same_class_from_an_iou_of_nine_tenths() -> None:
    box = (0.0, 0.0, 100.0, 100.0)
    # widened by w at one side: IoU = 100 / (100 + w), 0.9 at w = 11.1
    assert match(found(box), found((0.0, 0.0, 111.0, 100.0))) == BoxAgreement(matched=1)
    assert match(found(box), found((0.0, 0.0, 111.2, 100.0))) == BoxAgreement(only_left=1, only_right=1)
    assert match(found(box), found(box, classes=(1,))) == BoxAgreement(only_left=1, only_right=1)


def test_each_box_has_one_partner() -> None:
    box, near = (0.0, 0.0, 100.0, 100.0), (0.0, 0.0, 102.0, 100.0)
    assert match(found(box, near), found(box)) == BoxAgreement(matched=1, only_left=1)
    assert match(found(box), found(near, box)) == BoxAgreement(matched=1, only_right=1)
    assert match(found(box, near), found(near, box)) == BoxAgreement(matched=2)


def test_boxes_of_integers_match_within_one_step_of_their_output() -> None:
    small = (308.0, 499.0, 341.0, 532.0)  # 33 pixels wide
    lower = (308.0, 501.5, 341.0, 534.5)  # one step of 2.5 lower: IoU 33 * 30.5 / (33 * 35.5) = 0.859
    assert match(found(small), found(lower)) == BoxAgreement(only_left=1, only_right=1)
    assert match(found(small), found(lower), 2.5) == BoxAgreement(near=1)
    assert match(found(small), found(lower), 2.4) == BoxAgreement(only_left=1, only_right=1)
    assert match(found(small), found(lower, classes=(1,)), 2.5) == BoxAgreement(only_left=1, only_right=1)
    wider = (305.5, 499.0, 343.5, 532.0)  # centre the same, two steps wider
    assert match(found(small), found(wider), 2.5) == BoxAgreement(only_left=1, only_right=1)
    both = BoxAgreement(matched=6, near=2, only_left=1, only_right=3)
    assert both.fraction == pytest.approx(16 / 20)


def test_nothing_and_empty_boxes() -> None:
    point = (5.0, 5.0, 5.0, 5.0)
    assert match(found(), found(point)) == BoxAgreement(only_right=1)
    assert match(found(point), found(point)) == BoxAgreement(only_left=1, only_right=1)  # no area, no overlap
    assert match(found(), found()).fraction == 1.0


def test_the_share_counts_the_boxes_of_both() -> None:
    whole = BoxAgreement(matched=3, only_left=1) + BoxAgreement(matched=1, only_left=0, only_right=2)
    assert whole == BoxAgreement(matched=4, only_left=1, only_right=2)
    assert whole.fraction == pytest.approx(8 / 11)


def test_boxes_of_outputs_are_those_that_are_shown() -> None:
    boxes = np.array([[[50.0, 200.0, 300.0], [50.0, 200.0, 300.0], [20.0, 20.0, 20.0], [20.0, 20.0, 20.0]]])
    left = {"boxes": boxes, "scores": np.array([[[0.9, 0.5, 0.24]]])}
    right = {"boxes": boxes, "scores": np.array([[[0.9, 0.2, 0.24]]])}
    assert compare_boxes(left, right) == BoxAgreement(matched=1, only_left=1)
    with pytest.raises(StageError):
        compare_boxes({"logits": np.zeros((1, 10))}, right)


ASKED = {"cosine": 0.99, "sqnr_db": 20.0, "boxes_matched": 0.9}


def figures(matched: int, alone: int) -> dict[str, Any]:
    good = {"cosine": 0.999, "sqnr_db": 30.0, "max_abs": 0.1}
    agreement = BoxAgreement(matched=matched, only_left=alone)
    boxes = {"fraction": agreement.fraction, "matched": matched, "within_a_step": 0, "only_candidate": alone,
             "only_quantised": 0}  # fmt: skip
    told = {"kind": "tensors", "boundary": "compiled", "outputs": {"scores": good}, "tensors": [], "boxes": boxes}
    return {**told, "agreement": {"outputs": {"scores": {**good, "sqnr_db": 12.5}}}}


def test_the_gate_judges_the_share_of_matched_boxes() -> None:
    gate = Gate.from_params({"boundary": "compiled", "thresholds": ASKED})
    good, bad = judge(gate, [figures(90, 20)]), judge(gate, [figures(89, 22)])
    assert [(check.output, check.figure, check.threshold) for check in good][-1] == ("detections", "boxes_matched", 0.9)
    assert good[-1].value == 0.9
    assert all(check.passed for check in good)
    assert [check.figure for check in bad if not check.passed] == ["boxes_matched"]
    with pytest.raises(GateError) as caught:
        refuse_failures(gate, bad, [figures(89, 22)], [{**figures(9, 0), "boundary": "quantized"}])
    (fault,) = caught.value.faults
    assert "boxes_matched is 0.89, below 0.9" in fault.what
    assert "emulator against the QDQ model" in fault.hint
    assert "12.5 dB" in fault.hint
    assert "boundary quantized passes" in fault.hint


def test_each_part_of_an_artifact_is_named() -> None:
    parts = {"boundary": "compiled", "thresholds": {"cosine": 0.9995}, "parts": ["qcs9075", "qcs8275"]}
    good = figures(9, 0)
    good["outputs"] = {"scores": {**good["outputs"]["scores"], "cosine": 1.0}}
    gate = Gate.from_params(parts)
    checks = judge(gate, [good, figures(9, 0)])
    told = [check.to_json() for check in checks]
    assert [(check["output"], check["passed"]) for check in told] == [
        ("scores on qcs9075", True),
        ("scores on qcs8275", False),
    ]
    assert "part" not in told[0]
    with pytest.raises(GateError) as caught:
        refuse_failures(gate, checks, [good, figures(9, 0)], [{**figures(9, 0), "boundary": "quantized"}])
    (fault,) = caught.value.faults
    assert fault.what.startswith("output 'scores on qcs8275': cosine is 0.999, below")
    assert "boundary quantized falls short too" in fault.hint  # its figures are found by the output's own name
    assert "emulator (qcs8275) against the QDQ model" in fault.hint
    with pytest.raises(StageError):
        judge(gate, [good])


def test_no_box_at_all_passes_with_a_warning() -> None:
    check = judge(Gate.from_params({"boundary": "compiled", "thresholds": ASKED}), [figures(0, 0)])[-1]
    assert check.passed
    assert "nothing was compared" in check.warning


def test_a_threshold_of_its_own_and_one_without_boxes() -> None:
    strict = Gate.from_params({"boundary": "compiled", "thresholds": {"cosine": 0.99, "boxes_matched": 0.99}})
    assert [check.passed for check in judge(strict, [figures(97, 3)])] == [True, False]
    without = {**figures(1, 0), "boxes": None}
    with pytest.raises(StageError):
        judge(strict, [without])
    unasked = Gate.from_params({"boundary": "compiled", "thresholds": {"cosine": 0.99, "sqnr_db": 20.0}})
    assert [check.figure for check in judge(unasked, [figures(1, 9)])] == ["cosine", "sqnr_db"]  # null in the recipe
