"""Qualcomm toolchain, SDK road: which tensor of a binary is which of the model. Names in, names out.

The converters write a tensor's name as one of C++: what is no letter, digit or _ becomes _, and a leading digit gets a
_ before it (``input.1`` becomes ``input_1``; ``/7`` was seen as ``_7``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.htp.metadata import Graph, Metadata, Tensor
from npubake.toolchains.qualcomm.qairt.raw_files import file_name

PICTURES = ("rgb", "bgr", "gray")  # kinds of inputs that take bytes of a picture
_SAME_SCALE = 1e-6  # relative: eight units in the last place of a float32


def binary_names(record: Mapping[str, Any], graph: Graph) -> dict[str, str]:
    """Model input or output -> the binary's name of it. record: ``adapt``'s.

    Raises StageError, all faults at once, where a tensor of the model is not in the binary, or several fit.
    """
    found: dict[str, str] = {}
    faults: list[Fault] = []
    for side, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        theirs = [tensor.name for tensor in tensors]
        for name in record[side]:
            fits = _fitting(name, theirs)
            if len(fits) == 1:
                found[name] = fits[0]
                continue
            there = ", ".join(map(repr, theirs)) or "none"
            what = f"{len(fits)} of the binary's {side} fit {name!r}: they are {there}"
            hint = "give the model's inputs and outputs names of letters, digits and _ that differ"
            faults.append(Fault(what=what, where=name, hint=hint))
    if faults:
        raise StageError(*faults)
    return found


def in_model_names(metadata: Metadata, names: Mapping[str, str]) -> Metadata:
    """The same with the model's names. names: of ``binary_names``."""
    ours = {theirs: name for name, theirs in names.items()}
    return _changed(metadata, lambda tensor: replace(tensor, name=ours.get(tensor.name, tensor.name)))


def near_scales(metadata: Metadata, record: Mapping[str, Any]) -> Metadata:
    """The same, a scale that is the planned one but for the last bits taken for it: the converters may make it of
    minimum and maximum again. Of 65536 steps the last then lies less than a tenth of a step away. Plain bytes of a
    picture (``UINT_8``) have no scale in the binary: the nodes behind them know it.
    """
    planned = {name: entry for side in ("inputs", "outputs") for name, entry in record[side].items()}

    def near(tensor: Tensor) -> Tensor:
        entry = planned.get(tensor.name)
        if entry is None or entry["scale"] is None:
            return tensor
        wanted = float(entry["scale"])
        if tensor.qnn_dtype == "UINT_8" and entry.get("kind") in PICTURES:
            return replace(tensor, scale=wanted, offset=-int(entry["zero_point"]))
        if tensor.scale is None or abs(tensor.scale - wanted) > _SAME_SCALE * wanted:
            return tensor
        return replace(tensor, scale=wanted)

    return _changed(metadata, near)


def _changed(metadata: Metadata, change: Callable[[Tensor], Tensor]) -> Metadata:
    """Every input and output of every graph."""

    def of(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(change(tensor) for tensor in tensors)

    parts = (
        replace(
            part,
            graphs=tuple(replace(graph, inputs=of(graph.inputs), outputs=of(graph.outputs)) for graph in part.graphs),
        )
        for part in metadata.parts
    )
    return replace(metadata, parts=tuple(parts))


def _fitting(name: str, theirs: Iterable[str]) -> list[str]:
    names = list(theirs)
    plain = file_name(name)
    return [other for other in names if other == name] or [
        other for other in names if file_name(other) in (plain, f"_{plain}")
    ]
