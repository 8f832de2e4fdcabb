"""Lines of a build that nobody watches on a terminal: never silent for long, never one for every step."""

from __future__ import annotations

import pytest

from npubake.cli.progress import Lines
from npubake.pipeline.stage import Stage
from npubake.pipeline.task import Task

TASK = Task(id="observe-1", stage=Stage(name="observe", version=1, run="a:b"), targets=("small", "other"))


def test_a_stage_is_told_when_it_begins_and_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [0.0]
    lines = Lines(clock=lambda: seconds[0])
    lines.started(TASK, ())
    for done in range(1, 31):
        seconds[0] = float(done)
        lines.progress(TASK, done, 30)
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("observe ")
    assert "small and 1 more" in told[0]
    assert [line.split()[-1] for line in told[1:]] == ["10/30", "20/30", "30/30"]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(quiet=True, clock=lambda: 100.0)
    lines.started(TASK, ())
    lines.progress(TASK, 1, 2)
    assert capsys.readouterr().err == ""
