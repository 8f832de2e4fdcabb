"""Qualcomm toolchain, SDK road: what a file of encodings must be, version by version. JSON in, (place, fault) out.

After AIMET's Docs/techniques/encoding_spec.rst: which keys an entry has by its kind, and what they hold. Written from
that document, not from what ``encodings`` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SIDES = ("activation_encodings", "param_encodings")
_OLD_FLOAT = {"bitwidth": int, "dtype": str}
_OLD_INT: Mapping[str, Any] = {
    **_OLD_FLOAT,
    "is_symmetric": str,
    "max": float,
    "min": float,
    "offset": int,
    "scale": float,
}
_NEW_FLOAT = {"name": str, "enc_type": str, "dtype": str, "bw": int}
_NEW_INT: Mapping[str, Any] = {**_NEW_FLOAT, "is_sym": bool, "scale": list, "offset": list}
_KINDS = ("PER_TENSOR", "PER_CHANNEL", "PER_BLOCK", "LPBQ")
_WIDEST = 32
_ROUNDING = 1e-5  # relative; min and max are products that may have been rounded to float32

Found = Iterator[tuple[str, str]]


def faults(content: Mapping[str, Any]) -> Found:
    """Every departure from the specification of the version that ``content`` names."""
    version = content.get("version")
    if version not in ("0.6.1", "1.0.0"):
        yield "version", f"{version!r} is neither 0.6.1 nor 1.0.0"
        return
    wanted: type = dict if version == "0.6.1" else list
    for side in _SIDES:
        entries = content.get(side)
        if not isinstance(entries, wanted):
            yield side, f"has to be a {wanted.__name__} in version {version}"
        elif isinstance(entries, dict):
            for name, encodings in entries.items():
                yield from _old_tensor(f"{side}.{name}", encodings)
        elif isinstance(entries, list):
            yield from _new_side(side, entries)


def _old_tensor(where: str, encodings: Any) -> Found:
    if not isinstance(encodings, list) or not encodings:
        yield where, "has to be a list of at least one encoding"
        return
    for at, entry in enumerate(encodings):
        place = f"{where}[{at}]"
        integer = isinstance(entry, dict) and entry.get("dtype") == "int"
        yield from _fields(place, entry, _OLD_INT if integer else _OLD_FLOAT)
        if isinstance(entry, dict) and integer and set(entry) == set(_OLD_INT):
            yield from _old_arithmetic(place, entry)
    widths = {entry.get("bitwidth") for entry in encodings if isinstance(entry, dict)}
    if len(widths) > 1:
        yield where, "the channels of one tensor have to share a bit width"


def _old_arithmetic(where: str, entry: Mapping[str, Any]) -> Found:
    """min, max, scale and offset say the same grid."""
    if entry["is_symmetric"] not in ("True", "False"):
        yield where, "is_symmetric has to be the text True or False"
    if not entry["scale"] > 0:
        yield where, "scale has to be above 0"
        return
    steps = 2 ** entry["bitwidth"] - 1
    near = _ROUNDING * (entry["max"] - entry["min"])
    if abs(entry["min"] - entry["scale"] * entry["offset"]) > near:
        yield where, "min is not scale * offset"
    if abs(entry["max"] - entry["min"] - entry["scale"] * steps) > near:
        yield where, "max - min is not scale * (2**bitwidth - 1)"


def _new_side(side: str, entries: list[Any]) -> Found:
    names: set[str] = set()
    for at, entry in enumerate(entries):
        where = f"{side}[{at}]"
        integer = isinstance(entry, dict) and entry.get("dtype") == "INT"
        wanted = dict(_NEW_INT if integer else _NEW_FLOAT)
        if integer and entry.get("enc_type") == "PER_BLOCK":
            wanted["block_size"] = int
        yield from _fields(where, entry, wanted)
        if not isinstance(entry, dict):
            continue
        if entry.get("enc_type") not in _KINDS:
            yield where, f"enc_type has to be one of {', '.join(_KINDS)}"
        if entry.get("name") in names:
            yield where, f"{entry['name']!r} stands there twice"
        names.add(str(entry.get("name")))
        if integer and isinstance(entry.get("scale"), list) and isinstance(entry.get("offset"), list):
            yield from _new_arithmetic(where, entry)


def _new_arithmetic(where: str, entry: Mapping[str, Any]) -> Found:
    scales, offsets = entry["scale"], entry["offset"]
    if not scales or len(scales) != len(offsets):
        yield where, "scale and offset have to be as long as each other, and not empty"
    if entry.get("enc_type") == "PER_TENSOR" and len(scales) > 1:
        yield where, "PER_TENSOR has one scale"
    if any(not isinstance(scale, float) or not scale > 0 for scale in scales):
        yield where, "every scale has to be a number above 0"


def _fields(where: str, entry: Any, wanted: Mapping[str, Any]) -> Found:
    """Exactly these keys, each of its type, and a bit width and data type that exist."""
    if not isinstance(entry, dict):
        yield where, "has to be an object"
        return
    for name in sorted(set(wanted) - set(entry)):
        yield where, f"{name} is missing"
    for name in sorted(set(entry) - set(wanted)):
        yield where, f"{name} does not belong there"
    for name, kind in wanted.items():
        value = entry.get(name)
        if name in entry and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            yield where, f"{name} has to be of type {kind.__name__}"
    width = entry.get("bitwidth", entry.get("bw"))
    if isinstance(width, int) and not 2 <= width <= _WIDEST:
        yield where, f"a width of {width} bits does not exist"
    if str(entry.get("dtype")).lower() not in ("int", "float"):
        yield where, "dtype has to be int or float"
