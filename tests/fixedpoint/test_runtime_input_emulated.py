"""Baked runtime inputs give the same bits on CPUs without AVX-512 and without AVX (qemu-user)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixedpoint.runtime_input_digest import digest

ROOT = Path(__file__).resolve().parents[2]
QEMU = shutil.which("qemu-x86_64-static")


@pytest.mark.skipif(
    (QEMU is None or platform.machine() != "x86_64") and "NPUBAKE_REQUIRE_QEMU" not in os.environ,
    reason="needs qemu-x86_64-static (Debian: qemu-user-static) on x86-64",
)
@pytest.mark.parametrize("cpu", ["Haswell", "Nehalem"])
def test_same_bits_on_an_older_cpu(cpu: str) -> None:
    assert QEMU is not None, "qemu-x86_64-static is required here"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, sys.path)]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [QEMU, "-cpu", cpu, os.path.realpath(sys.executable), "-m", "tests.fixedpoint.runtime_input_digest"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split()[-1] == digest()
