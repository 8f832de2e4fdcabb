"""Toolchains room: the archive of recorded examples, what an artifact was fed and what it answered. Arrays and paths.

Entries: ``00000/inputs/<name>.npy`` and ``00000/outputs/<name>.npy``, then ``recorded.json`` with the source and the
digests of every example.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.archive import ArchiveWriter
from npubake.errors import StageError
from npubake.graph.execution import cosine
from npubake.toolchains import bundle_file, wellformed

RECORDED = "recorded.json"  # the archive's head
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One example: where it came from, and the artifact's own inputs and outputs."""

    example: str
    inputs: Arrays
    outputs: Arrays

    def facts(self) -> dict[str, Any]:
        return {"example": self.example, "inputs": digests(self.inputs), "outputs": digests(self.outputs)}


def write_recorded(path: Path, examples: Iterable[Recorded]) -> list[dict[str, Any]]:
    """Write the archive; the facts of every example. One is in memory at a time."""
    runs = []
    with ArchiveWriter(path) as writer:
        for index, example in enumerate(examples):
            for side, arrays in (("inputs", example.inputs), ("outputs", example.outputs)):
                for name, array in arrays.items():
                    writer.array(f"{index:05d}/{side}/{name}.npy", array)
            runs.append(example.facts())
        writer.json(RECORDED, {"version": 1, "runs": runs})
    return runs


def read_recorded(data: bytes, where: str, stated: Sequence[Mapping[str, Any]] | None = None) -> list[Recorded]:
    """Every example of an archive. stated: the facts that ``verify``'s record has of them, where it is at hand.

    Raises StageError where it is none, where an array is not what its digest says, and for other examples than stated.
    """
    found = bundle_file.members(data, where)
    head = bundle_file.parsed(found.get(RECORDED, b""), f"{where}: {RECORDED}", wellformed.RECORDED)
    if stated is not None and (not stated or head["runs"] != list(stated)):
        what = f"it holds {len(head['runs'])} examples, and not the {len(stated)} that were verified"
        raise StageError(bundle_file.foreign(where, what))
    examples, faults = [], []
    for index, run in enumerate(head["runs"]):
        sides = {
            side: {name: bundle_file.array(found, f"{index:05d}/{side}/{name}.npy", where) for name in run[side]}
            for side in ("inputs", "outputs")
        }
        examples.append(Recorded(example=run["example"], inputs=sides["inputs"], outputs=sides["outputs"]))
        faults += [
            bundle_file.foreign(f"{where}: {index:05d}/{side}/{name}.npy", f"it is not what {RECORDED} says of it")
            for side, arrays in sides.items()
            for name, digest in digests(arrays).items()
            if digest != run[side][name]
        ]
    if faults:
        raise StageError(*faults)
    return examples


def require_output(example: Recorded, name: str, where: str) -> NDArray[Any]:
    """A recorded output. Raises StageError where the archive has none of that name."""
    if name not in example.outputs:
        raise StageError(bundle_file.foreign(where, f"{example.example}: the output {name} is not recorded"))
    return example.outputs[name]


def digests(arrays: Arrays) -> dict[str, str]:
    """sha256 of each array's dtype, shape and bytes in C order."""
    found = {}
    for name, array in arrays.items():
        head = f"{array.dtype.str} {list(array.shape)} ".encode()
        found[name] = hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()
    return found


def difference(left: NDArray[Any], right: NDArray[Any]) -> tuple[bool, float, float]:
    """(every bit of value, dtype and shape equal, largest absolute difference, cosine)."""
    if left.shape != right.shape:
        return False, math.inf, 0.0
    if left.dtype == right.dtype and left.tobytes() == right.tobytes():
        return True, 0.0, 1.0  # not the cosine's own last bit, which differs between CPUs
    gap = np.abs(left.astype(np.float64) - right.astype(np.float64)).max(initial=0.0)
    return False, float(gap), cosine(left, right)
