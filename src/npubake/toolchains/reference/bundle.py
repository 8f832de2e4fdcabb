"""Reference toolchain: the released bundle, a canonical zip. Bytes in, bytes out; ``verify_bundle`` checks and runs
one.

Entries: ``model.npub`` (the package), ``contract.json`` (the same contract, readable by itself), ``calibration.zip``
(the calibration archive), ``verify.json`` (what ``verify`` found), ``recorded.zip`` (its inputs and outputs),
``SHA256SUMS``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npubake.errors import Fault, StageError
from npubake.toolchains.reference import canonical_zip, wellformed

if TYPE_CHECKING:  # writing a bundle needs neither numpy nor onnxruntime
    from numpy.typing import NDArray

    from npubake.toolchains.reference.package_file import Package

PACKAGE = "model.npub"
CONTRACT = "contract.json"
CALIBRATION = "calibration.zip"
VERIFIED = "verify.json"
OUTPUTS = "recorded.zip"
SUMS = "SHA256SUMS"
ENTRIES = (PACKAGE, CONTRACT, CALIBRATION, VERIFIED, OUTPUTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What ``verify_bundle`` found in a good bundle. entries: sha256 by name; runs: examples executed; exact: compared
    bit by bit; max_difference: largest absolute difference of an output (0 where exact).
    """

    platform: str
    entries: Mapping[str, str]
    runs: int
    exact: bool
    max_difference: float


def write_bundle(entries: Mapping[str, bytes]) -> bytes:
    """The bundle of exactly ``ENTRIES``, with their digests in the form that ``sha256sum --check`` reads."""
    if set(entries) != set(ENTRIES):
        raise ValueError(f"a bundle holds {ENTRIES}, not {sorted(entries)}")
    return canonical_zip.write({**entries, SUMS: _sums(entries)})


def read_bundle(data: bytes, where: str) -> dict[str, bytes]:
    """Entries of a bundle without ``SHA256SUMS``. Raises StageError, all faults at once, where anything was changed."""
    entries = canonical_zip.read(data, where)
    sums = entries.pop(SUMS, b"")
    faults = [
        _foreign(where, f"{name} {'is missing' if name in ENTRIES else 'does not belong there'}")
        for name in sorted(set(entries) ^ set(ENTRIES))
    ]
    listed = _parse_sums(sums)
    for name, content in entries.items():
        if listed.get(name) != hashlib.sha256(content).hexdigest():
            faults.append(_foreign(f"{where}: {name}", f"its bytes are not those that {SUMS} names"))
    if not faults and sums != _sums(entries):
        faults.append(_foreign(f"{where}: {SUMS}", "it is not the list that its entries make"))
    if faults:
        raise StageError(*faults)
    return entries


def verify_bundle(path: Path, *, threads: int = 1, digest: str = "") -> BundleReport:
    """Check every byte, then run the package on the recorded inputs and compare with the recorded outputs.

    digest: sha256 that the file must have (the manifest's), where one is at hand. Raises StageError with what is wrong.
    """
    from npubake.toolchains.reference.package_file import Package, contract_bytes

    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if digest and found != digest:
        hint = "this is another bundle than the one that the manifest describes"
        raise StageError(Fault(where=path.name, what=f"sha256 {found}, wanted {digest}", hint=hint))
    entries = read_bundle(data, path.name)
    package = Package.from_bytes(entries[PACKAGE], f"{path.name}: {PACKAGE}")
    verified = _json(entries[VERIFIED], f"{path.name}: {VERIFIED}", wellformed.VERIFIED)
    faults = []
    if entries[CONTRACT] != contract_bytes(package.contract):
        faults.append(Fault(where=f"{path.name}: {CONTRACT}", what="it is not the package's own contract"))
    stated = {PACKAGE: verified["deployable_sha256"], OUTPUTS: verified["recorded_sha256"]}
    faults += [
        Fault(where=f"{path.name}: {name}", what=f"{VERIFIED} was written about other bytes")
        for name, wanted in stated.items()
        if hashlib.sha256(entries[name]).hexdigest() != wanted
    ]
    if faults:
        raise StageError(*faults)
    _require_one_preset(package, entries, path.name)
    worst = _run_recorded(package, entries[OUTPUTS], path.name, threads)
    return BundleReport(
        platform=package.contract["platform"]["platform"],
        entries={name: hashlib.sha256(content).hexdigest() for name, content in sorted(entries.items())},
        runs=len(verified["runs"]),
        exact=bool(package.contract["exact"]),
        max_difference=worst,
    )


def _require_one_preset(package: Package, entries: Mapping[str, bytes], where: str) -> None:
    """Raises StageError where the calibration archive was made by another preset than the contract states."""
    from npubake.toolchains.reference import pictures

    stated, archived = pictures.expanded(package.contract["preprocessing"]), preprocessing(entries, where)
    if stated != archived:
        what = f"its preset is {archived}, the contract states {stated}"
        raise StageError(_foreign(f"{where}: {CALIBRATION}", what))


def preprocessing(entries: Mapping[str, bytes], where: str) -> Mapping[str, Any] | None:
    """The expanded preset of a bundle's calibration archive; None where it takes prepared tensors."""
    place = f"{where}: {CALIBRATION}"
    head = _members(entries[CALIBRATION], place).get("samples.json")
    preset: Mapping[str, Any] | None = None if head is None else _json(head, place, wellformed.SAMPLES).get("preset")
    if not preset or not preset.get("decode"):
        return None
    wellformed.require(preset, wellformed.PRESET, place)
    return preset


def _run_recorded(package: Package, recorded: bytes, where: str, threads: int) -> float:
    """Run every recorded example; returns an output's largest difference. Raises StageError with all that differ."""
    from npubake.toolchains.reference.executor import Executor
    from npubake.toolchains.reference.verification import FLOAT_COSINE, RECORDED, difference

    executor = Executor(package, threads=threads)
    place = f"{where}: {OUTPUTS}"
    members = _members(recorded, place)
    worst, faults = 0.0, []
    for index, run in enumerate(_json(members.get(RECORDED, b""), f"{place}: {RECORDED}", wellformed.RECORDED)["runs"]):
        feeds = {name: _array(members, f"{index:05d}/inputs/{name}.npy", place) for name in run["inputs"]}
        outputs = executor.run(feeds)
        for name, value in outputs.items():
            equal, gap, angle = difference(value, _array(members, f"{index:05d}/outputs/{name}.npy", place))
            worst = max(worst, gap)
            if not equal and (package.contract["exact"] or angle < FLOAT_COSINE):
                what = f"{run['example']}: output differs from the recorded one by {gap:.6g} (cosine {angle:.6f})"
                hint = "this machine does not compute the integer model exactly: report it, with `npubake doctor`"
                faults.append(Fault(where=f"{where}: {name}", what=what, hint=hint))
    if faults:
        raise StageError(*faults)
    return worst


def _members(data: bytes, where: str) -> dict[str, bytes]:
    """Members of an archive whose digest has been checked already."""
    from npubake.graph.array_files import UnreadableArrayError, read_zip

    try:
        return read_zip(data)
    except UnreadableArrayError as error:
        raise StageError(_foreign(where, f"it is no archive: {error}")) from error


def _array(members: Mapping[str, bytes], name: str, where: str) -> NDArray[Any]:
    from npubake.graph.array_files import UnreadableArrayError, read_npy

    try:
        return read_npy(members[name])
    except KeyError as error:
        raise StageError(_foreign(where, f"{name} is missing")) from error
    except UnreadableArrayError as error:
        raise StageError(_foreign(f"{where}: {name}", f"it is no array: {error}")) from error


def _json(data: bytes, where: str, form: Any) -> Any:
    """Parsed JSON of the given form (``wellformed``). Raises StageError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StageError(_foreign(where, f"it is no JSON: {error}")) from error
    wellformed.require(value, form, where)
    return value


def _foreign(where: str, what: str) -> Fault:
    return Fault(where=where, what=what, hint="npubake did not write this; take the bundle from the build again")


def _sums(entries: Mapping[str, bytes]) -> bytes:
    lines = [f"{hashlib.sha256(entries[name]).hexdigest()}  {name}\n" for name in sorted(entries)]
    return "".join(lines).encode()


def _parse_sums(data: bytes) -> dict[str, str]:
    lines = [line.split("  ", 1) for line in data.decode("utf-8", "replace").splitlines()]
    return {parts[1]: parts[0] for parts in lines if len(parts) == 2}
