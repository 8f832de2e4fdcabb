"""The tripwire of ``adapt``: bytes that change without its version being raised would serve stale results from stores.

``adapted_bytes.json`` holds its version and the digests of what ``adapted_bytes.py`` makes. After raising the version
in stages/__init__.py, ``NPUBAKE_REWRITE_GOLDEN=1 pytest`` of this file writes it anew; the difference is reviewed.
Under other tool versions the comparison is skipped, since those are in the keys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npubake.stages import STAGES

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = "tests.toolchains.qualcomm.adapting.adapted_bytes"
GOLDEN = Path(__file__).with_name("adapted_bytes.json")
REWRITE = "NPUBAKE_REWRITE_GOLDEN"
ENVIRONMENTS = (
    {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo", "OMP_NUM_THREADS": "1"},
    {"PYTHONHASHSEED": "4711", "LC_ALL": "C.UTF-8", "TZ": "UTC", "OMP_NUM_THREADS": "2"},
)


def facts(changed: dict[str, str], folder: Path) -> dict[str, Any]:
    """What the program says in another environment and folder."""
    environment = {**os.environ, **changed, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", PROGRAM]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return [facts(each, tmp_path_factory.mktemp("other")) for each in ENVIRONMENTS]


def test_hash_seed_locale_folder_and_threads_change_no_byte(made: list[dict[str, Any]]) -> None:
    first, second = made
    assert first == second


def test_no_byte_changes_without_a_new_version(made: list[dict[str, Any]]) -> None:
    now = {**made[0], "version": STAGES["adapt"].version}
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    same_tools = now["tools"] == golden.get("tools")
    unraised = same_tools and now["digests"] != golden["digests"] and now["version"] == golden["version"]
    if os.environ.get(REWRITE):
        assert not unraised, "raise the version of adapt in stages/__init__.py first"
        GOLDEN.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return
    if not same_tools:
        pytest.skip("made with other tool versions: they are in the keys, so nothing stale can be served")
    assert not unraised, f"bytes changed: raise the version of adapt in stages/__init__.py, then {REWRITE}=1"
    assert now == golden, f"rewrite with {REWRITE}=1 and review the difference"
