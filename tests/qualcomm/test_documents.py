"""The commands of docs/toolchains/qualcomm.md run with the real compiler, and print what the page shows; what it states
of platforms and of the contract is what these say.

Blocks of ``sh`` and ``python`` are for installing and for a board, and are not run; the one for the host is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from npubake.platforms import load_platforms
from tests.e2e.test_documents import copy_of_a_clone, shown_commands, wrong_commands
from tests.e2e.workspace import REPOSITORY
from tests.qualcomm import needs_qnn

pytestmark = needs_qnn

PAGE = REPOSITORY / "docs" / "toolchains" / "qualcomm.md"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_a_clone(tmp_path_factory.mktemp("qualcomm-page") / "npubake")


def test_every_command_of_the_page_runs_and_prints_what_is_shown(checkout: Path) -> None:
    shown = shown_commands([PAGE])
    assert {"new", "check", "build", "run", "verify", "export", "doctor"} <= {
        entry.command.split()[1] for entry in shown if entry.command.startswith("npubake ")
    }
    wrong = wrong_commands(shown, checkout, timeout=1200)
    assert not wrong, "\n\n".join(wrong)
    told = json.loads((checkout / "build" / "digits_qcs9075" / "contract.json").read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    host = {entry["file"].removesuffix(".so") for entry in told["runtime"]["libraries"]}
    assert all(name in text for name in host)  # what is pushed to the board
    left = [path.name for path in (checkout / "build" / "digits_qcs9075").iterdir()]
    named = re.findall(r"`([^`]+)`", text.partition("### What lies in")[2].partition("###")[0])
    for name in (name.replace("<target>", "digits_qcs9075").strip("/") for name in named):
        assert name in left or "." not in name, name
    made = checkout / "build" / "digits_qcs9075"
    (block,) = re.findall(r"```python\n(# on the host.*?)```", text, re.DOTALL)
    subprocess.run([sys.executable, "-c", block], cwd=made, check=True)
    lines = (made / "input_list.txt").read_text(encoding="utf-8").split()
    assert lines[0] == "image:=recorded/00000/inputs/image.raw"
    assert [(made / line.partition(":=")[2]).stat().st_size for line in lines] == [784] * 4  # bytes of uint8 pixels


def test_the_table_of_socs_is_that_of_the_platform_files() -> None:
    text = PAGE.read_text(encoding="utf-8")
    lanes: list[str] = []
    found = {}
    for row in re.findall(
        r"^\| `([a-z0-9-]+)`[^|]*\| (\S+), (\d+) \| (v\d+) \| (\d+) MiB \| ([^|]*) \|$", text, re.MULTILINE
    ):
        name, soc, model, march, mib, said = row
        lanes = lanes if said == "the same" else said.partition(":")[0].split(", ")
        found[name] = (soc, model, march, int(mib) << 20, tuple(lanes))
    assert found == {
        name: (
            str(platform.soc.value),
            str(platform.soc_model.value),
            str(platform.march.value),
            platform.vtcm_bytes.value,
            tuple(platform.lanes.value or ()),
        )
        for name, platform in load_platforms(REPOSITORY).items()
        if "qualcomm" in platform.toolchains
    }
