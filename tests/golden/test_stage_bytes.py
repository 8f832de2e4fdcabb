"""The tripwire: bytes of a stage that change without its version being raised would serve stale results from stores.

``stage_bytes.json`` holds, for each stage whose bytes repeat on every CPU, its version and the digest of each output on
the small project of ``tests/e2e``. After raising a version, ``NPUBAKE_REWRITE_GOLDEN=1 pytest tests/golden`` writes it
anew; the difference is reviewed like any other change. Under other tool versions than those it was made with, the
comparison is skipped, since those versions are in the keys.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from npubake.stages import STAGES
from tests.e2e.workspace import Workspace

GOLDEN = Path(__file__).with_suffix("").with_name("stage_bytes.json")
# Statistics repeat on one CPU class only, and so do the figures of measures; what gates and verify say follows them.
# So does what tune learns from float activations: the project is built without it.
# Sample sets name the digests of their PNG files, whose compression is not the same everywhere; pixels have golden
# bytes of their own in tests/calibration.
REPEATING = {
    "import": ("model",),
    "optimize": ("model", "graph"),
    "calibrate": ("model", "parameters"),
    "ptq": ("model",),
    "quantize": ("model", "removed"),
    "compile": ("deployable",),
}
REWRITE = "NPUBAKE_REWRITE_GOLDEN"


def made(workspace: Workspace) -> dict[str, Any]:
    """Stage -> version and digests of its repeating outputs; and the tools they were made with."""
    tasks = {task["stage"]: task for task in workspace.build().json["tasks"]}
    manifest = json.loads((workspace.root / "build" / "small" / "manifest.json").read_text())
    return {
        "tools": manifest["reproducible"]["tools"],
        "stages": {
            stage: {
                "version": STAGES[stage].version,
                "outputs": {port: tasks[stage]["outputs"][port]["digest"] for port in ports},
            }
            for stage, ports in REPEATING.items()
        },
    }


def test_no_stage_changes_its_bytes_without_a_new_version(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "project")
    workspace.edit("quant_config:\n", "quant_config:\n  tuning: {level: none}\n")
    now = made(workspace)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"tools": {}, "stages": {}}
    changed = {
        stage
        for stage, facts in now["stages"].items()
        if stage in golden["stages"] and facts["outputs"] != golden["stages"][stage]["outputs"]
    }
    same_tools = now["tools"] == golden["tools"]
    unraised = [stage for stage in sorted(changed) if _unraised(stage, golden["stages"][stage], now, changed)]
    if os.environ.get(REWRITE):
        assert not same_tools or not unraised, f"raise the version in stages/__init__.py first: {unraised}"
        GOLDEN.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return
    if not same_tools:
        pytest.skip("made with other tool versions: they are in the keys, so nothing stale can be served")
    assert not unraised, f"bytes changed: raise the version of {unraised} in stages/__init__.py, then {REWRITE}=1"
    assert now == golden, f"rewrite with {REWRITE}=1 and review the difference"


def _unraised(stage: str, before: dict[str, Any], now: dict[str, Any], changed: set[str]) -> bool:
    """Whether the stage itself changed: its version stands, and no stage that it reads from changed its bytes."""
    upstream = list(REPEATING)[: list(REPEATING).index(stage)]
    return now["stages"][stage]["version"] == before["version"] and not changed.intersection(upstream)
