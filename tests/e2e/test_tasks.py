"""Every stage of a real build, alone: in another process, with a store that holds its inputs and nothing else, and
under the watch for files, sockets and processes that it did not declare. Its outputs are those of the build.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.pipeline.key import key
from npubake.pipeline.store import Record, Store
from npubake.pipeline.worker import Specification
from npubake.stages import STAGES
from tests.e2e.workspace import Workspace
from tests.pipeline.hermetic import violations

# Stages of vendors' roads: each starts the vendor's tools, which nothing watches; tests/qualcomm runs them.
VENDORS = (
    "probe", "adapt", "quantise_aimet", "compile_htp", "emulate", "verify_htp", "package_htp",
    "compile_qairt", "emulate_qairt", "verify_qairt",
)  # fmt: skip


def records(store: Store, stage: str) -> list[Record]:
    """What a store knows of a stage, in the order of keys."""
    keys = sorted(path.parent.name + path.stem for path in (store.root / "ac").rglob("*.json"))
    found = [record for name in keys if (record := store.record(name)) is not None]
    return [record for record in found if record.dictionary["stage"] == stage]


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in VENDORS])
def test_a_stage_needs_its_specification_and_its_inputs_alone(
    built_once: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))  # what was compiled is declared, as in a build
    home = Store(built_once.root / ".npubake" / "store")
    made = records(home, stage)[0]
    elsewhere = Store(tmp_path / "elsewhere" / "store")
    for digest in {digest for port in made.dictionary["inputs"].values() for digest in port}:
        content = home.read(digest)
        assert content is not None
        elsewhere.put(content, digest)
    specification = Specification(
        task=stage,
        run=STAGES[stage].run,
        outputs=tuple(STAGES[stage].outputs),
        dictionary=made.dictionary,
        store=str(elsewhere.root),
    )
    assert violations(specification) == []
    again = elsewhere.record(key(made.dictionary))
    assert again is not None
    assert again.outputs == made.outputs
