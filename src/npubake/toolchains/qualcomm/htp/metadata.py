"""Qualcomm toolchain: what a compiled binary says of itself, as data and as JSON. A binary in, ``Metadata`` out.

The reader runs in a process of its own (``context_reader``): a damaged binary cannot end ours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains.process import run_module
from npubake.toolchains.qualcomm.htp.context_archive import context_binaries, is_archive

READER = "npubake.toolchains.qualcomm.htp.context_reader"
_TIMEOUT = 120.0  # seconds; a detector's binary takes 0.1

# QNN's data types (QnnTypes.h, without QNN_DATATYPE_) -> the same integers or floats in ONNX.
DTYPES: Mapping[str, str] = {
    "INT_8": "int8",
    "INT_16": "int16",
    "INT_32": "int32",
    "INT_64": "int64",
    "UINT_8": "uint8",
    "UINT_16": "uint16",
    "UINT_32": "uint32",
    "UINT_64": "uint64",
    "FLOAT_16": "float16",
    "FLOAT_32": "float32",
    "SFIXED_POINT_8": "int8",
    "SFIXED_POINT_16": "int16",
    "SFIXED_POINT_32": "int32",
    "UFIXED_POINT_8": "uint8",
    "UFIXED_POINT_16": "uint16",
    "UFIXED_POINT_32": "uint32",
    "BOOL_8": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a graph in the binary. dtype: as in ONNX (``uint8``); qnn_dtype: QNN's own name of it;
    scale, offset: real = scale * (code + offset), None for what is no fixed point; offset is minus ONNX's zero point.
    """

    name: str
    dtype: str
    qnn_dtype: str
    shape: tuple[int, ...]
    scale: float | None
    offset: int | None

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Tensor:
        return cls(**{**facts, "shape": tuple(facts["shape"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One graph of a binary; inputs and outputs in the binary's order."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Graph:
        inputs, outputs = (tuple(Tensor.from_json(one) for one in facts[side]) for side in ("inputs", "outputs"))
        return cls(name=facts["name"], inputs=inputs, outputs=outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The context binary for one SoC. arch: HTP architecture, ``v73``; build_id: of the QNN libraries that made it; the
    others: versions of interfaces and of the format; blob_bytes: size of the context in it.
    """

    soc_model: int
    arch: str
    build_id: str
    core_api: str
    backend_api: str
    blob_version: str
    blob_bytes: int
    graphs: tuple[Graph, ...]

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Part:
        return cls(**{**facts, "graphs": tuple(Graph.from_json(graph) for graph in facts["graphs"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a compiled artifact says of itself. parts: one for each SoC, ascending; tools: versions of what made it;
    estimates: the compiler's simulation, see ``estimates.py``: never a latency.
    """

    parts: tuple[Part, ...]
    tools: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, Any] = field(default_factory=dict)

    @property
    def soc_models(self) -> tuple[int, ...]:
        return tuple(part.soc_model for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """``soc_model``: the list as in a platform file, ``77,82``; ``build_id`` and ``graphs``: of the first part,
        which ``checks`` holds the others to; ``parts``: each one's own; ``tools``; ``estimates`` where there are any.
        """
        first = asdict(self.parts[0])
        facts: dict[str, Any] = {
            "version": 1,
            "soc_model": ",".join(str(model) for model in self.soc_models),
            "build_id": first["build_id"],
            "graphs": first["graphs"],
            "parts": [asdict(part) for part in self.parts],
            "tools": dict(self.tools),
        }
        return facts | ({"estimates": dict(self.estimates)} if self.estimates else {})

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Metadata:
        parts = tuple(Part.from_json(part) for part in facts["parts"])
        return cls(parts=parts, tools=dict(facts["tools"]), estimates=dict(facts.get("estimates", {})))


def read_metadata(binary: bytes) -> Metadata:
    """Of a binary for one SoC or for several. Raises StageError for one that is damaged or of a version not known."""
    contexts = context_binaries(binary) if is_archive(binary) else {"binary": binary}
    if not contexts:
        raise StageError(Fault(what="the binary for several SoCs holds no context", hint="compile again"))
    names = [f"{index}.bin" for index in range(len(contexts))]
    with tempfile.TemporaryDirectory(prefix="npubake-metadata-") as place:
        folder = Path(place)
        for name, data in zip(names, contexts.values(), strict=True):
            (folder / name).write_bytes(data)
        answer = run_module(READER, {"binaries": names}, folder=folder, timeout=_TIMEOUT)
    parts = [Part.from_json(part) for part in answer["parts"]]
    return Metadata(parts=tuple(sorted(parts, key=lambda part: part.soc_model)))
