"""The stage ``adapt`` under the watch for files, sockets and processes that it did not declare."""

from __future__ import annotations

from pathlib import Path

from npubake.pipeline.store import Store
from npubake.pipeline.worker import Specification
from npubake.stages import STAGES
from tests.pipeline.hermetic import violations
from tests.toolchains.digits import calibrated


def test_adapt_needs_its_specification_and_its_inputs_alone(tmp_path: Path) -> None:
    road, store = calibrated(), Store(tmp_path / "store")
    files = {
        "model": "optimize.model",
        "graph": "optimize.graph",
        "parameters": "calibrate.parameters",
        "statistics": "observe.statistics",
        "decisions": "calibrate.record",
    }
    given = {port: store.put_file(road.files[name]) for port, name in files.items()}
    specification = Specification(
        task="adapt",
        run=STAGES["adapt"].run,
        outputs=tuple(STAGES["adapt"].outputs),
        dictionary={
            "stage": "adapt",
            "version": STAGES["adapt"].version,
            "params": {"lane": "a8w8", "io": "quantized"},
            "inputs": {port: [digest] for port, digest in given.items()},
            "tools": {},
        },
        store=str(store.root),
    )
    assert violations(specification) == []
