"""Failpoints kill at the n-th time, and do nothing unless armed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
CODE = (
    "from npubake.pipeline.failpoints import reach\nfor name in ('a', 'b', 'a', 'a'):\n    reach(name)\n    print(name)"
)


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-u", "-c", CODE]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("armed", "printed"), [("a", ""), ("b", "a"), ("a:2", "a b"), ("a:3", "a b a")])
@pytest.mark.parametrize("traced", [False, True])
def test_kills_at_the_nth_time(tmp_path: Path, armed: str, printed: str, traced: bool) -> None:
    trace = {"NPUBAKE_FAILPOINT_TRACE": str(tmp_path / "trace")} if traced else {}
    done = run(NPUBAKE_FAILPOINT=armed, **trace)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == printed.split()


@pytest.mark.parametrize("armed", ["", "c", "a:9"])
def test_passes_by_otherwise(armed: str) -> None:
    done = run(NPUBAKE_FAILPOINT=armed)
    assert (done.returncode, done.stdout.split()) == (0, ["a", "b", "a", "a"])


def test_a_trace_names_what_was_reached(tmp_path: Path) -> None:
    assert run(NPUBAKE_FAILPOINT_TRACE=str(tmp_path / "trace")).returncode == 0
    assert (tmp_path / "trace").read_text().split() == ["a", "b", "a", "a"]
