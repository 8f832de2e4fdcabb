"""Qualcomm toolchain: a smoke compile for ``doctor``: does the installed compiler work? Nothing heavy here."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from npubake.errors import BuildError
from npubake.toolchains.process import run_module

COMPILER = "npubake.toolchains.qualcomm.htp.smoke_compiler"
_TIMEOUT = 120.0  # seconds; it takes a third of one
_LISTED = ("onnxruntime_qnn", "onnxruntime", "qnn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """tools: versions of the provider, of onnxruntime and of QNN; build_id: of the QNN libraries, read back from the
    binary; why: why it failed, '' where it compiled.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    build_id: str = ""
    why: str = ""

    @property
    def compiled(self) -> bool:
        return not self.why

    @property
    def text(self) -> str:
        """One line for people."""
        if not self.compiled:
            return self.why
        versions = ", ".join(f"{name} {self.tools[name]}" for name in _LISTED)
        return f"compiled one operator for HTP v73: {versions}, build {self.build_id}"


def smoke() -> Smoke:
    """Compile one operator for soc_model 77 in a process of its own and read the binary back. Raises nothing: what goes
    wrong is the answer.
    """
    with tempfile.TemporaryDirectory(prefix="npubake-smoke-") as folder:
        try:
            answer = run_module(COMPILER, {}, folder=Path(folder), timeout=_TIMEOUT)
        except BuildError as error:
            return Smoke(why="; ".join(fault.what for fault in error.faults))
    return Smoke(tools=answer["tools"], build_id=answer["build_id"], why=answer["error"])
