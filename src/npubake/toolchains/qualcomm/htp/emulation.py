"""Qualcomm toolchain: runs a compiled artifact in the x86 emulator of the HTP. Arrays in, arrays out, by example.

Each run is a clean process of its own; several share the examples, since one does not keep several cores busy: two
processes on two cores run 8 examples of a 640 x 640 detector in two thirds of the time of one. An example's outputs do
not depend on what ran before it, so that the split changes no byte. Its time says nothing of a board: it is no latency.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npubake.toolchains.board_edges import Arrays, BoardEdges
from npubake.toolchains.process import run_module
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER, done_name, file_name

MODULE = "npubake.toolchains.qualcomm.htp.htp_emulator"
_SECONDS_AN_EXAMPLE = 900.0  # after which a run is taken for hung; a 640 x 640 detector takes 2 to 16
Progress = Callable[[int, int], None]


def _silent(_done: int, _total: int) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A compiled model. wrapper, binary: bytes of the two files; contract: its runtime contract."""

    wrapper: bytes
    binary: bytes
    contract: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """processes: how many run side by side at most; progress: called with (examples done, of)."""

    processes: int = 1
    progress: Progress = _silent


def emulate(artifact: Artifact, feeds: Sequence[Arrays], how: How) -> list[Arrays]:
    """Outputs of every example as the binary gives them, by name, in the order of ``feeds``. feeds: the binary's own
    inputs (dense, dtypes and shapes of the contract).

    Raises StageError for feeds that do not fit, and where the emulator refuses the artifact.
    """
    edges = BoardEdges(artifact.contract)
    for feed in feeds:
        edges.require(feed)
    with tempfile.TemporaryDirectory(prefix="npubake-emulate-") as place:
        folders = _laid_out(artifact, feeds, Path(place), max(1, min(how.processes, len(feeds))))
        _run_all(artifact.contract, folders, len(feeds), how.progress)
        names = [entry["name"] for entry in artifact.contract["outputs"]]
        return [
            {
                name: np.load(folders[index % len(folders)] / file_name(index, place, "out"), allow_pickle=False)
                for place, name in enumerate(names)
            }
            for index in range(len(feeds))
        ]


def _laid_out(artifact: Artifact, feeds: Sequence[Arrays], place: Path, count: int) -> list[Path]:
    """A folder for each process, with the artifact and its share of the examples."""
    names = [entry["name"] for entry in artifact.contract["inputs"]]
    files = {WRAPPER: artifact.wrapper, BINARY: artifact.binary}
    for name, data in files.items():
        (place / name).write_bytes(data)
    folders = [place / str(number) for number in range(count)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        for name in files:
            os.link(place / name, folder / name)
        for index in range(number, len(feeds), count):
            for position, name in enumerate(names):
                np.save(folder / file_name(index, position, "in"), feeds[index][name], allow_pickle=False)
    return folders


def _run_all(contract: Mapping[str, Any], folders: Sequence[Path], total: int, progress: Progress) -> None:
    """Run every folder's share at the same time; the first that fails, or an interruption, ends the others."""
    shares = [list(range(number, total, len(folders))) for number in range(len(folders))]
    ended = threading.Event()
    said = _Said(folders=folders, shares=shares, total=total, progress=progress)

    def watch() -> None:
        if ended.is_set():
            raise InterruptedError("another process failed")
        said.look()

    def run_one(folder: Path, examples: Sequence[int]) -> None:
        request = {
            "inputs": [entry["name"] for entry in contract["inputs"]],
            "outputs": [entry["name"] for entry in contract["outputs"]],
            "examples": list(examples),
            "strict": not contract["cpu_nodes"],
        }
        run_module(MODULE, request, folder=folder, timeout=_SECONDS_AN_EXAMPLE * (len(examples) + 1), watch=watch)

    if len(folders) == 1:
        run_one(folders[0], shares[0])
    else:
        with ThreadPoolExecutor(max_workers=len(folders)) as pool, _ending(ended):
            runs = [pool.submit(run_one, folder, share) for folder, share in zip(folders, shares, strict=True)]
            for run in runs:
                run.result()
    progress(total, total)


@contextmanager
def _ending(event: threading.Event) -> Iterator[None]:
    """Sets the event where its body raises anything, also an interruption."""
    try:
        yield
    except BaseException:
        event.set()
        raise


@dataclass(slots=True, kw_only=True)
class _Said:
    """Counts finished examples and reports each change once, from whichever thread looks."""

    folders: Sequence[Path]
    shares: Sequence[Sequence[int]]
    total: int
    progress: Progress
    last: int = 0

    def look(self) -> None:
        done = sum(
            (folder / done_name(example)).exists()
            for folder, share in zip(self.folders, self.shares, strict=True)
            for example in share
        )
        if done > self.last:
            self.last = done
            self.progress(done, self.total)
