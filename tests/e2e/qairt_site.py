"""A project whose one target takes the SDK's road, and a FAKE SDK folder for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.workspace import Result, Workspace
from tests.toolchains.qualcomm.qairt.fake_sdk import make_sdk, told

OPTIONS = "toolchain_options:\n  qualcomm: {road: sdk, emulated_examples: 3}\n"


@dataclass
class Site:
    """A project whose one target takes the SDK's road, and the fake SDK."""

    workspace: Workspace
    sdk: Path

    @classmethod
    def create(cls, root: Path) -> Site:
        workspace = Workspace.untuned(root / "project")
        workspace.edit("runtime_input:\n  image: {type: gray}\n", OPTIONS)
        workspace.edit("platform: generic", "platform: qcs9075")
        return cls(workspace, make_sdk(root / "an sdk"))

    def copy(self, root: Path, version: str = "2.40.0.251030") -> Site:
        """The same project with another SDK, so that its stages run again and all before them is reused."""
        return Site(self.workspace.copy(root / "project"), make_sdk(root / "another sdk", version))

    def run(self, *words: str, **extra: str) -> Result:
        return self.workspace.run(*words, cwd=None, **{"QAIRT_SDK_ROOT": str(self.sdk), **extra})

    def build(self) -> Result:
        return self.run("build", "small", "--json")

    def made(self, name: str) -> Any:
        return json.loads((self.workspace.root / "build" / "small" / name).read_text())

    def tools(self) -> list[str]:
        return [line[0] for line in told(self.sdk)]
