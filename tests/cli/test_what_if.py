"""``what-if``: words that stand in two rooms, and findings as text."""

from __future__ import annotations

from npubake.cli.parser import SORTS
from npubake.cli.what_if import _findings_text
from npubake.quant.thresholds import MEASURED_METHODS


def test_every_method_may_be_sorted_by() -> None:
    assert SORTS[: len(MEASURED_METHODS)] == MEASURED_METHODS


def test_findings_that_the_same_lines_mend_stand_together_behind_the_warnings() -> None:
    notes = [
        {"severity": "note", "tensor": name, "what": "is dead", "recipe": "calibration:\n  samples: 4"} for name in "ab"
    ]
    warning = {"severity": "warning", "tensor": "c", "what": "is wide", "recipe": "layer_overrides: []"}
    assert _findings_text([notes[0], warning, notes[1]]) == [
        "",
        "warning: c: is wide",
        "    layer_overrides: []",
        "",
        "note: a: is dead",
        "note: b: is dead",
        "    calibration:",
        "      samples: 4",
    ]
    assert _findings_text([]) == ["", "nothing found"]
