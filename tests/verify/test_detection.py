"""Boxes of a detector: forms of outputs, and suppression against the rule written out pair by pair."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.errors import StageError
from npubake.verify.detection import DetectionRule, detect, split_outputs

box = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 20), st.integers(1, 20))


def overlap(a: tuple[int, ...], b: tuple[int, ...]) -> Fraction:
    """IoU of two boxes (x1, y1, w, h), exactly."""
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    return Fraction(shared, a[2] * a[3] + b[2] * b[3] - shared)


@given(st.lists(st.tuples(box, st.integers(0, 2), st.integers(0, 100)), min_size=1, max_size=25))
def test_suppression_keeps_what_no_stronger_one_of_its_class_covers(
    rows: list[tuple[tuple[int, ...], int, int]],
) -> None:
    boxes = np.array([[x + w / 2, y + h / 2, w, h] for (x, y, w, h), _, _ in rows], float).T
    scores = np.zeros((3, len(rows)))
    for index, (_, which, score) in enumerate(rows):
        scores[which, index] = (score + 1) / 200
    ranked = sorted(range(len(rows)), key=lambda i: (-rows[i][2], rows[i][1], i))
    kept: list[int] = []
    for index in ranked:
        rivals = [rows[k] for k in kept if rows[k][1] == rows[index][1]]
        if all(overlap(rival[0], rows[index][0]) <= Fraction(13, 20) for rival in rivals):
            kept.append(index)
    found = detect(boxes, scores, DetectionRule(overlap=0.65))
    assert found.classes.tolist() == [rows[index][1] for index in kept]
    x1 = [rows[index][0][0] for index in kept]
    assert found.corners[:, 0] == pytest.approx(x1)


def test_weak_ones_and_too_many_are_left_out() -> None:
    boxes = np.array([[100.0 * i, 5.0, 10.0, 10.0] for i in range(10)]).T
    scores = np.linspace(0.0, 0.9, 10)[None]
    found = detect(boxes, scores, DetectionRule(score=0.35, most=4))
    assert found.scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert len(detect(boxes, scores, DetectionRule(score=0.35)).scores) == 6
    assert len(detect(boxes, scores, DetectionRule(score=2.0)).scores) == 0


def test_both_forms_of_outputs_are_read() -> None:
    boxes, scores = np.ones((1, 4, 30), np.float32), np.zeros((1, 3, 30), np.float32)
    for outputs in ({"boxes": boxes, "scores": scores}, {"output0": np.concatenate([boxes, scores], axis=1)}):
        one, two = split_outputs(outputs)
        assert (one.shape, two.shape) == ((4, 30), (3, 30))
        assert one.all()
        assert not two.any()


@pytest.mark.parametrize("shape", [(1, 10), (1, 3, 30), (2, 7, 30), (1, 30, 7)])
def test_other_outputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(StageError):
        split_outputs({"logits": np.zeros(shape)})
