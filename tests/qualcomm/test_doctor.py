"""``npubake doctor`` where the compiler is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.qualcomm import needs_qnn

pytestmark = needs_qnn


def test_doctor_compiles_and_names_versions_and_licences(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "npubake", "doctor", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    facts = report["details"]["qualcomm"]["facts"]
    assert (facts["execution provider"], facts["QNN"]) == ("2.7.0", "2.51.0")
    assert facts["smoke compile"].startswith("compiled one operator")
    assert "Qualcomm AI Stack License" in " ".join(facts.values())
    assert report["details"]["qualcomm"]["faults"] == []
    assert report["toolchains"]["qualcomm"]["usable"] is True
