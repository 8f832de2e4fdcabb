"""Bundles of another hand, sealed anew with digests that fit: refused or run, never a traceback."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.errors import BuildError, StageError
from npubake.toolchains import canonical_zip, wellformed
from npubake.toolchains.reference import bundle
from npubake.toolchains.reference.package_file import contract_bytes
from npubake.toolchains.reference.running import load_package, run_files
from tests.toolchains.digits import GRAY, J6P, PICTURE, Road, calibrated, compiled, packaged, quantised, verified

VALUES: tuple[Any, ...] = (None, -1, "x", [], {}, True, 1e300)


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    made = quantised(calibrated().branch(tmp_path_factory.mktemp("sealed")), {"runtime_input": GRAY})
    return packaged(verified(compiled(made, {"platform": J6P}), {"count": 1}))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in a JSON value."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in entries:
        yield from places(child, (*path, name))


def altered(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    if new is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return copy


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def sealed(entries: Mapping[str, bytes]) -> bytes:
    """The bundle with every digest in it put right."""
    stated = json.loads(entries[bundle.VERIFIED])
    if "deployable_sha256" in stated:
        stated["deployable_sha256"] = hashlib.sha256(entries[bundle.PACKAGE]).hexdigest()
    if "recorded_sha256" in stated:
        stated["recorded_sha256"] = hashlib.sha256(entries[bundle.OUTPUTS]).hexdigest()
    return bundle.write_bundle({**entries, bundle.VERIFIED: json.dumps(stated).encode()})


def variants(entries: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Bundles that differ in one value of one JSON document, or one member."""
    choice = random.Random(11)
    package = unpacked(entries[bundle.PACKAGE])
    recorded, samples = unpacked(entries[bundle.OUTPUTS]), unpacked(entries[bundle.CALIBRATION])
    contract, head = json.loads(package["contract.json"]), json.loads(recorded["recorded.json"])
    for path in [path for path in places(contract) if path[0] not in ("memory", "notes")]:
        forged = contract_bytes(altered(contract, path, choice.choice((*VALUES, ...))))
        whole = canonical_zip.write({**package, "contract.json": forged})
        yield {**entries, bundle.PACKAGE: whole, bundle.CONTRACT: forged}
    for path in places(head):
        forged = json.dumps(altered(head, path, choice.choice((*VALUES, ...)))).encode()
        yield {**entries, bundle.OUTPUTS: packed({**recorded, "recorded.json": forged})}
    for name in recorded:
        yield {**entries, bundle.OUTPUTS: packed({key: data for key, data in recorded.items() if key != name})}
        yield {**entries, bundle.OUTPUTS: packed({**recorded, name: b"junk"})}
    for path in places(json.loads(entries[bundle.VERIFIED])):
        forged = altered(json.loads(entries[bundle.VERIFIED]), path, choice.choice((*VALUES, ...)))
        yield {**entries, bundle.VERIFIED: json.dumps(forged).encode()}
    for path in places(PICTURE):
        for value in (*VALUES, ...):
            forged = json.dumps(
                {**json.loads(samples["samples.json"]), "preset": altered(PICTURE, path, value)}
            ).encode()
            yield {**entries, bundle.CALIBRATION: packed({**samples, "samples.json": forged})}
    for length in (0, 10, len(package["model.onnx"]) // 2):
        model = package["model.onnx"][:length]
        stated = {**contract, "model": {**contract["model"], "sha256": hashlib.sha256(model).hexdigest()}}
        whole = canonical_zip.write({"contract.json": contract_bytes(stated), "model.onnx": model})
        yield {**entries, bundle.PACKAGE: whole, bundle.CONTRACT: contract_bytes(stated)}


def test_whatever_is_changed_is_refused_or_run(road: Road, tmp_path: Path) -> None:
    entries = bundle.read_bundle(road.files["package.bundle"].read_bytes(), "x")
    with SampleSet.open(road.files["samples"]) as samples:
        np.save(tmp_path / "seven.npy", samples.read_stored(5)["image"])
    path, refusals = tmp_path / "sealed.bundle", list[BuildError]()
    for changed in variants(entries):
        path.write_bytes(sealed(changed))
        for use in (
            lambda: bundle.verify_bundle(path),
            lambda: run_files(load_package(path), [("", tmp_path / "seven.npy")]),
        ):
            try:
                use()
            except BuildError as error:
                refusals.append(error)
    assert len(refusals) > 100
    assert [str(error) for error in refusals if not all(fault.hint for fault in error.faults)] == []


def test_a_model_cannot_be_called_exact_or_inexact_at_will(road: Road, tmp_path: Path) -> None:
    entries = bundle.read_bundle(road.files["package.bundle"].read_bytes(), "x")
    package = unpacked(entries[bundle.PACKAGE])
    forged = contract_bytes({**json.loads(package["contract.json"]), "exact": False})
    whole = canonical_zip.write({**package, "contract.json": forged})
    path = tmp_path / "sealed.bundle"
    path.write_bytes(sealed({**entries, bundle.PACKAGE: whole, bundle.CONTRACT: forged}))
    with pytest.raises(StageError, match="exact"):
        bundle.verify_bundle(path)


def test_forms() -> None:
    form = {"a": [int], "b": wellformed.Maybe({"x", "y"}), "c": wellformed.Absent(wellformed.Each(bool))}
    assert not list(wellformed.misfits({"a": [1, 2], "b": None, "more": 0}, form))
    assert not list(wellformed.misfits({"a": [], "b": "x", "c": {"p": True}}, form))
    found = [path for path, _ in wellformed.misfits({"a": [1, True, "2"], "c": {"p": 1}}, form)]
    assert found == ["$.a[1]", "$.a[2]", "$", "$.c.p"]


def test_a_bundle_calibrated_with_another_preset_is_refused(road: Road, tmp_path: Path) -> None:
    """What was calibrated is what the contract tells applications to feed."""
    entries = bundle.read_bundle(road.files["package.bundle"].read_bytes(), "x")
    samples = unpacked(entries[bundle.CALIBRATION])
    head = {**json.loads(samples["samples.json"]), "preset": {**PICTURE, "scale": {"divide_by": 128}}}
    changed = packed({**samples, "samples.json": json.dumps(head).encode()})
    path = tmp_path / "sealed.bundle"
    path.write_bytes(sealed({**entries, bundle.CALIBRATION: changed}))
    with pytest.raises(StageError, match="preset"):
        bundle.verify_bundle(path)
