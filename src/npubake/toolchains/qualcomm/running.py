"""Qualcomm toolchain: runs a built artifact on files in the emulator, for ``npubake run``. Paths in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npubake.toolchains import require
from npubake.toolchains.board_edges import BoardEdges
from npubake.toolchains.feeding import Run, feed
from npubake.toolchains.qualcomm.emulation import Artifact, How, emulate

NOTE = "run in the x86 emulator of the HTP, from the compiled binary: its time says nothing of a board's"


def run_files(artifact: Artifact, files: Sequence[tuple[str, Path]], *, example: int | None = None) -> Run:
    """Run one example; ``feeding.feed`` says how files are read. Raises UsageError for files that cannot be fed,
    ToolchainError where the emulator is not installed.
    """
    require("qualcomm")
    edges = BoardEdges(artifact.contract)
    fed = feed(artifact.contract, files, example)
    (outputs,) = emulate(artifact, [edges.taken(fed.values)], How())
    real = edges.restore(outputs)
    named = {entry["model_output"]: real[entry["name"]] for entry in artifact.contract["outputs"]}
    fed.notes.append(NOTE)
    return Run(outputs=named, fed=fed)
