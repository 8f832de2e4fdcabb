"""Qualcomm toolchain, SDK road: which tensor of a binary is which of the model. Names in, names out.

The converters write a tensor's name as one of C++: what is no letter, digit or _ becomes _, and a leading digit gets a
_ before it (``/7`` was seen as ``_7``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.metadata import Graph
from npubake.toolchains.qualcomm.qairt.raw_files import file_name


def renamed_record(record: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
    """``adapt``'s record with its inputs and outputs under the binary's names, in the model's order.

    Raises StageError, all faults at once, where a tensor of the model is not in the binary, or two fit.
    """
    sides = {"inputs": graph.inputs, "outputs": graph.outputs}
    changed = {
        side: {theirs: record[side][ours] for ours, theirs in _pairs(side, record[side], tensors).items()}
        for side, tensors in ((side, [tensor.name for tensor in found]) for side, found in sides.items())
    }
    return {**record, **changed}


def _pairs(side: str, ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    names, found, faults = list(theirs), dict[str, str](), []
    for name in ours:
        plain = file_name(name)
        fits = [other for other in names if other == name] or [
            other for other in names if file_name(other) in (plain, f"_{plain}")
        ]
        if len(fits) == 1:
            found[name] = fits[0]
            continue
        what = f"{len(fits)} of the binary's {side} fit {name!r}: they are {', '.join(map(repr, names)) or 'none'}"
        faults.append(Fault(what=what, where=name, hint="give the model's inputs and outputs plain, different names"))
    if faults:
        raise StageError(*faults)
    return found
