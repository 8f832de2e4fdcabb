"""Nothing is sent anywhere: onnxruntime's own telemetry, a thread of the process that imports it, is off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from npubake.pipeline import pool
from npubake.toolchains import process

# Variables with which onnxruntime keeps quiet by itself; those libraries that start threads of their own.
_QUIET = ("CI", "ORT_RUNNING_UNIT_TESTS", "ORT_DISABLE_TELEMETRY")
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_THREADS = "import onnxruntime, os; print(len(os.listdir('/proc/self/task')))"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")


def threads(text: str, environment: Mapping[str, str]) -> int:
    done = subprocess.run([sys.executable, "-c", text], env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.fixture
def loud() -> dict[str, str]:
    """This environment, without anything that silences onnxruntime."""
    return {name: value for name, value in os.environ.items() if name not in _QUIET} | _ALONE


def test_importing_npubake_turns_it_off(loud: dict[str, str]) -> None:
    assert threads(f"import npubake; {_THREADS}", loud) == 1


def test_a_user_may_turn_it_on(loud: dict[str, str]) -> None:
    asked = {**loud, "ORT_DISABLE_TELEMETRY": "0"}
    text = "import npubake, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert threads(text, asked) == 0


def test_workers_and_vendor_processes_have_it_off_whatever_was_asked(loud: dict[str, str]) -> None:
    for fixed in (pool.FIXED, process.FIXED):
        assert threads(_THREADS, {**loud, "ORT_DISABLE_TELEMETRY": "0", **fixed}) == 1
