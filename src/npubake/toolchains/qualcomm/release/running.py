"""Qualcomm toolchain: runs a built artifact on files in the emulator, for ``npubake run``. Paths in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npubake.errors import Fault, UsageError
from npubake.toolchains import require
from npubake.toolchains.board_edges import BoardEdges
from npubake.toolchains.feeding import Run, feed
from npubake.toolchains.qualcomm.htp.context_archive import is_archive
from npubake.toolchains.qualcomm.htp.emulation import Artifact, How, emulate
from npubake.toolchains.qualcomm.probe import NAME
from npubake.toolchains.qualcomm.qairt.sdk import made_by_sdk
from npubake.toolchains.qualcomm.qairt.verification import emulated_by_sdk

NOTE = "run in the x86 emulator of the HTP, from the compiled binary: its time says nothing of a board's"


def run_files(artifact: Artifact, files: Sequence[tuple[str, Path]], *, example: int | None = None) -> Run:
    """Run one example; ``feeding.feed`` says how files are read. Raises UsageError for files that cannot be fed,
    ToolchainError where the emulator is not installed.
    """
    by_sdk = made_by_sdk(artifact.contract)
    if is_archive(artifact.binary):
        hint = "build the target of one of its SoCs, and run that: it is the same model by the same compiler"
        raise UsageError(Fault(what="the emulator opens no binary for several SoCs", hint=hint))
    if not by_sdk:
        require(NAME)
    edges = BoardEdges(artifact.contract)
    fed = feed(artifact.contract, files, example)
    feeds = [edges.taken(fed.values)]
    (outputs,) = emulated_by_sdk(artifact, feeds) if by_sdk else emulate(artifact, feeds, How())
    real = edges.restore(outputs)
    named = {entry["model_output"]: real[entry["name"]] for entry in artifact.contract["outputs"]}
    fed.notes.append(NOTE)
    return Run(outputs=named, fed=fed)
