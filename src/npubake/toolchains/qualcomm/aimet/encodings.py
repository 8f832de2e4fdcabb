"""Qualcomm toolchain: the encodings file that AIMET exports (schemas 0.6.1 and 1.0.0), read into plain data. No numpy.

A value is ``(code + offset) * scale`` with codes 0 to 2^bits - 1, also of symmetric encodings: AIMET writes the offset
of the unsigned grid, so ``zero point = -offset`` unsigned and ``-offset - 2^(bits - 1)`` signed (AIMET: Docs, encoding
specification; scale = (max - min) / (2^bits - 1), offset = round(min / scale)).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from npubake.errors import Fault, StageError

SCHEMAS = ("0.6.1", "1.0.0")
PER_TENSOR, PER_CHANNEL = "PER_TENSOR", "PER_CHANNEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How one tensor is held. scales, offsets: one, or one a channel; offsets are of the unsigned grid."""

    bits: int
    symmetric: bool
    scales: tuple[float, ...]
    offsets: tuple[int, ...]
    per_channel: bool = False

    def zero_points(self, *, signed: bool) -> tuple[int, ...]:
        """Of ``intN`` (signed) or ``uintN`` codes: the code of the value 0."""
        shift = 1 << (self.bits - 1) if signed else 0
        return tuple(-offset - shift for offset in self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """A whole file. left_in_float: tensors whose encoding says a float type."""

    schema: str
    activations: Mapping[str, Encoding]
    parameters: Mapping[str, Encoding]
    left_in_float: tuple[str, ...] = ()


def read_encodings(text: str) -> Encodings:
    """Raises StageError where the text is no encodings file of a schema that is known."""
    try:
        data = json.loads(text)
        schema = str(data["version"])
        sides = [_entries(data[side], schema) for side in ("activation_encodings", "param_encodings")]
        faults = [fault for entries in sides for fault in _unfit(entries, schema)]
        if faults:
            raise StageError(*faults)
        whole = [
            {name: _encoding(entry, schema) for name, entry in entries.items() if not _is_float(entry)}
            for entries in sides
        ]
    except (ValueError, KeyError, TypeError) as error:
        what = f"the encodings of AIMET cannot be read: {type(error).__name__}: {error}"
        raise StageError(Fault(what=what, where="aimet.encodings")) from error
    floats = sorted(name for entries in sides for name, entry in entries.items() if _is_float(entry))
    return Encodings(schema=schema, activations=whole[0], parameters=whole[1], left_in_float=tuple(floats))


def _entries(side: Any, schema: str) -> dict[str, Any]:
    """Tensor name -> its entry: a list of dictionaries (0.6.1), or one dictionary with its name in it (1.0.0)."""
    if schema not in SCHEMAS:
        hint = f"schemas: {', '.join(SCHEMAS)}"
        raise StageError(Fault(what=f"encodings of schema {schema} are not known", where="aimet.encodings", hint=hint))
    if schema == "0.6.1":
        return {name: entry if isinstance(entry, list) else [entry] for name, entry in side.items()}
    return {entry["name"]: entry for entry in side}


def _unfit(entries: Mapping[str, Any], schema: str) -> Iterable[Fault]:
    """Encodings by blocks: the compiler takes scales of channels, and no rounding of them is silent."""
    for name, entry in entries.items():
        kind = PER_TENSOR if schema == "0.6.1" or _is_float(entry) else str(entry["enc_type"])
        if kind not in (PER_TENSOR, PER_CHANNEL):
            yield Fault(what=f"{name} has an encoding of type {kind}, which is not read", where=name)


def _is_float(entry: Any) -> bool:
    first = entry[0] if isinstance(entry, list) else entry
    return str(first["dtype"]).lower() == "float"


def _encoding(entry: Any, schema: str) -> Encoding:
    if schema == "0.6.1":
        first = entry[0]
        return Encoding(
            bits=int(first["bitwidth"]),
            symmetric=str(first["is_symmetric"]).lower() == "true",
            scales=tuple(float(channel["scale"]) for channel in entry),
            offsets=tuple(int(channel["offset"]) for channel in entry),
            per_channel=len(entry) > 1,
        )
    return Encoding(
        bits=int(entry["bw"]),
        symmetric=bool(entry["is_sym"]),
        scales=tuple(map(float, entry["scale"])),
        offsets=tuple(map(int, entry["offset"])),
        per_channel=entry["enc_type"] == PER_CHANNEL,
    )
