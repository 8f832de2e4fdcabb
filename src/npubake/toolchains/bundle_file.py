"""Toolchains room: a bundle's file, a canonical zip with ``SHA256SUMS``, and how its members are read. Bytes and data.

What a bundle holds is its toolchain's (``reference/bundle.py``, ``qualcomm/release/bundle.py``); how it is sealed is
the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npubake.errors import Fault, StageError
from npubake.toolchains import canonical_zip, wellformed

if TYPE_CHECKING:  # writing a bundle needs no numpy
    from numpy.typing import NDArray

SUMS = "SHA256SUMS"
CALIBRATION = "calibration.zip"  # of every bundle: the calibration archive


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What is known of a good bundle. entries: sha256 by name; runs: recorded examples that were executed; exact:
    compared bit by bit; max_difference: largest absolute difference of an output (0 where exact); unexecuted: why the
    recorded examples were not executed here, where they were not.
    """

    toolchain: str
    platform: str
    entries: Mapping[str, str]
    runs: int
    exact: bool
    max_difference: float
    unexecuted: str = ""


def write(entries: Mapping[str, bytes], names: Sequence[str]) -> bytes:
    """The bundle of exactly ``names``, with their digests in the form that ``sha256sum --check`` reads."""
    if set(entries) != set(names):
        raise ValueError(f"a bundle holds {names}, not {sorted(entries)}")
    return canonical_zip.write({**entries, SUMS: _sums(entries)})


def read(data: bytes, where: str, names: Sequence[str]) -> dict[str, bytes]:
    """Entries of a bundle without ``SHA256SUMS``. Raises StageError, all faults at once, where anything was changed."""
    entries = canonical_zip.read(data, where)
    sums = entries.pop(SUMS, b"")
    faults = [
        foreign(where, f"{name} {'is missing' if name in names else 'does not belong there'}")
        for name in sorted(set(entries) ^ set(names))
    ]
    listed = _parse_sums(sums)
    for name, content in entries.items():
        if listed.get(name) != hashlib.sha256(content).hexdigest():
            faults.append(foreign(f"{where}: {name}", f"its bytes are not those that {SUMS} names"))
    if not faults and sums != _sums(entries):
        faults.append(foreign(f"{where}: {SUMS}", "it is not the list that its entries make"))
    if faults:
        raise StageError(*faults)
    return entries


def require_digest(data: bytes, digest: str, where: str) -> None:
    """Raises StageError where the file has not the sha256 that the manifest names; '' asks for none."""
    found = hashlib.sha256(data).hexdigest()
    if digest and found != digest:
        hint = "this is another bundle than the one that the manifest describes"
        raise StageError(Fault(where=where, what=f"sha256 {found}, wanted {digest}", hint=hint))


def restated(entries: Mapping[str, bytes], stated: Mapping[str, str], where: str, by: str) -> list[Fault]:
    """Faults of entries whose sha256 is not the one that another entry (``by``) states, by entry name."""
    return [
        Fault(where=f"{where}: {name}", what=f"{by} was written about other bytes")
        for name, wanted in stated.items()
        if hashlib.sha256(entries[name]).hexdigest() != wanted
    ]


def digests(entries: Mapping[str, bytes]) -> dict[str, str]:
    """sha256 of every entry, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(entries.items())}


def preprocessing(entries: Mapping[str, bytes], where: str) -> Mapping[str, Any] | None:
    """The expanded preset of a bundle's calibration archive; None where it takes prepared tensors."""
    place = f"{where}: {CALIBRATION}"
    head = members(entries[CALIBRATION], place).get("samples.json")
    preset: Mapping[str, Any] | None = None if head is None else parsed(head, place, wellformed.SAMPLES).get("preset")
    if not preset or not preset.get("decode"):
        return None
    wellformed.require(preset, wellformed.PRESET, place)
    return preset


def require_one_preset(contract: Mapping[str, Any], entries: Mapping[str, bytes], where: str) -> None:
    """Raises StageError where the calibration archive was made by another preset than the contract states."""
    from npubake.toolchains import pictures

    stated, archived = pictures.expanded(contract["preprocessing"]), preprocessing(entries, where)
    if stated != archived:
        what = f"its preset is {archived}, the contract states {stated}"
        raise StageError(foreign(f"{where}: {CALIBRATION}", what))


def members(data: bytes, where: str) -> dict[str, bytes]:
    """Members of an archive whose digest has been checked already."""
    from npubake.graph.array_files import UnreadableArrayError, read_zip

    try:
        return read_zip(data)
    except UnreadableArrayError as error:
        raise StageError(foreign(where, f"it is no archive: {error}")) from error


def array(found: Mapping[str, bytes], name: str, where: str) -> NDArray[Any]:
    """One array of an archive's members. Raises StageError."""
    from npubake.graph.array_files import UnreadableArrayError, read_npy

    try:
        return read_npy(found[name])
    except KeyError as error:
        raise StageError(foreign(where, f"{name} is missing")) from error
    except UnreadableArrayError as error:
        raise StageError(foreign(f"{where}: {name}", f"it is no array: {error}")) from error


def parsed(data: bytes, where: str, form: Any) -> Any:
    """Parsed JSON of the given form (``wellformed``). Raises StageError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StageError(foreign(where, f"it is no JSON: {error}")) from error
    wellformed.require(value, form, where)
    return value


def foreign(where: str, what: str) -> Fault:
    """A fault of a file that was put together by another hand."""
    return Fault(where=where, what=what, hint="npubake did not write this; take the bundle from the build again")


def _sums(entries: Mapping[str, bytes]) -> bytes:
    lines = [f"{hashlib.sha256(entries[name]).hexdigest()}  {name}\n" for name in sorted(entries)]
    return "".join(lines).encode()


def _parse_sums(data: bytes) -> dict[str, str]:
    lines = [line.split("  ", 1) for line in data.decode("utf-8", "replace").splitlines()]
    return {parts[1]: parts[0] for parts in lines if len(parts) == 2}
