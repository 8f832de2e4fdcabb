"""``what-if``: words that stand in two rooms, and targets without a calibration of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npubake.cli.parser import METHODS
from npubake.cli.what_if import _calibrated
from npubake.errors import UsageError
from npubake.quant.thresholds import MEASURED_METHODS
from npubake.stages import STAGES


def test_every_method_that_is_measured_has_a_column() -> None:
    assert METHODS == MEASURED_METHODS


def subject(name: str, lane: str) -> Any:
    return SimpleNamespace(name=name, target=SimpleNamespace(lane=SimpleNamespace(value=lane)))


def test_targets_that_nothing_calibrates_are_left_out_with_a_note() -> None:
    tasks: Any = [
        SimpleNamespace(stage=STAGES["calibrate"], targets=("small", "other")),
        SimpleNamespace(stage=STAGES["adapt"], targets=("float",)),
    ]
    kept, notes = _calibrated([subject("small", "a8w8"), subject("float", "fp16")], tasks)
    assert [entry.name for entry in kept] == ["small"]
    assert [note.partition(":")[0] for note in notes] == ["float"]
    with pytest.raises(UsageError) as caught:
        _calibrated([subject("float", "fp16"), subject("theirs", "a8w8")], tasks)
    assert [fault.where for fault in caught.value.faults] == ["float", "theirs"]
    assert "lane fp16" in caught.value.faults[0].what
