"""Package, contract, executor and bundle of the classifier on real digits."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npubake.calibration.samples import SampleSet
from npubake.errors import StageError
from npubake.graph.execution import run_model
from npubake.graph.model_file import load_model, parse_model
from npubake.toolchains import canonical_zip
from npubake.toolchains.reference import bundle
from npubake.toolchains.reference.contract import check_contract
from npubake.toolchains.reference.executor import Executor, run_package
from npubake.toolchains.reference.package_file import Package
from npubake.toolchains.reference.platform_facts import PlatformFacts
from tests.toolchains.digits import GRAY, J6E, J6P, PICTURE, Road, calibrated, compiled, packaged, quantised, verified


@pytest.fixture(scope="module")
def j6e(tmp_path_factory: pytest.TempPathFactory) -> Road:
    road = quantised(calibrated().branch(tmp_path_factory.mktemp("j6e")), {"tail": "int32", "runtime_input": GRAY})
    return packaged(verified(compiled(road, {"platform": J6E}), {"count": 2}))


def digits(road: Road, count: int) -> list[np.ndarray[Any, Any]]:
    with SampleSet.open(road.files["samples"]) as samples:
        return [samples.read_stored(index)["image"] for index in range(count)]


def test_a_digit_runs_and_the_scores_are_the_float_models(j6e: Road) -> None:
    """The package's real values follow the optimised float model: same class, error far below the scores' spread."""
    path = j6e.files["compile.deployable"]
    model = load_model(j6e.files["optimize.model"])
    for pixels in digits(j6e, 16):
        got = run_package(path, {"image": pixels})["logits"]
        want = run_model(model, {"image": (pixels.astype(np.float32) / np.float32(255)).reshape(1, 1, 28, 28)})[
            "logits"
        ]
        assert got.dtype == np.float32
        assert int(got.argmax()) == int(want.argmax())
        assert np.abs(got - want).max() < 0.1 * np.abs(want).max()


def test_board_buffers_and_dense_arrays_agree(j6e: Road) -> None:
    """The rows of the strided buffer lie 32 bytes apart; the int32 tail comes back in 64 bytes."""
    executor = Executor(Package.open(j6e.files["compile.deployable"]), threads=2)
    (pixels,) = digits(j6e, 1)
    buffer = np.zeros(28 * 32, dtype=np.uint8)
    for row in range(28):
        buffer[32 * row : 32 * row + 28] = pixels[row, :, 0]
    out = executor.run_buffers({"image": buffer})["logits"]
    assert out.size == 64
    dense = executor.run({"image": pixels.reshape(1, 1, 28, 28)})["logits"]
    assert out[:40].tobytes() == dense.astype("<i4").tobytes()
    assert not out[40:].any()
    scale = np.array(executor.contract["outputs"][0]["scale"], dtype=np.float32)
    np.testing.assert_array_equal(executor.edges.restore({"logits": dense})["logits"], dense.astype(np.float32) * scale)
    np.testing.assert_array_equal(
        run_package(j6e.files["compile.deployable"], {"image": pixels}, real=False)["logits"], dense
    )


def test_wrong_feeds_are_all_named(j6e: Road) -> None:
    executor = Executor(Package.open(j6e.files["compile.deployable"]))
    with pytest.raises(StageError) as caught:
        executor.run({"picture": np.zeros((1, 1, 28, 28), np.uint8)})
    assert [fault.where for fault in caught.value.faults] == ["picture", "image"]
    with pytest.raises(StageError):
        executor.run({"image": np.zeros((1, 28, 28, 1), np.uint8)})
    with pytest.raises(StageError):
        executor.run_buffers({"image": np.zeros(28 * 28, np.uint8)})


def test_package_with_other_parts_is_refused(j6e: Road) -> None:
    entries = canonical_zip.read(j6e.files["compile.deployable"].read_bytes(), "x")
    extra = canonical_zip.write({**entries, "notes.txt": b"hello"})
    other = canonical_zip.write({**entries, "model.onnx": entries["model.onnx"] + b"\x00"})
    newer = canonical_zip.write({**entries, "contract.json": b'{"version": 2}'})
    broken = canonical_zip.write({**entries, "contract.json": b"{"})
    for data in (extra, other, newer, broken):
        with pytest.raises(StageError):
            Package.from_bytes(data, "x")


def _set(path: tuple[Any, ...], value: Any) -> Any:
    def change(contract: Any) -> None:
        for step in path[:-1]:
            contract = contract[step]
        contract[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_set(("platform", "soc"), "J6P"), "platform"),
        (_set(("platform", "march"), "nash-m"), "platform"),
        (_set(("inputs", 0, "stride"), [784, 784, 28, 1]), "image"),
        (_set(("inputs", 0, "dtype"), "float32"), "inputs"),
        (_set(("inputs", 0, "valid_shape"), [1, 28, 28, 1]), "inputs"),
        (_set(("outputs", 0, "aligned_byte_size"), 40), "logits"),
        (_set(("outputs", 0, "dtype"), "float32"), "outputs"),
    ],
)
def test_contract_that_lies_is_found(j6e: Road, change: Any, where: str) -> None:
    package = Package.open(j6e.files["compile.deployable"])
    facts = PlatformFacts.from_params({"platform": J6E, "preset": PICTURE})
    model = parse_model(package.model)
    check_contract(package.contract, model, facts)
    contract = copy.deepcopy(dict(package.contract))
    change(contract)
    with pytest.raises(StageError) as caught:
        check_contract(contract, model, facts)
    assert where in {fault.where for fault in caught.value.faults}


def test_tail_of_the_other_platform_is_found(j6e: Road) -> None:
    """J6E's int32 tail is wrong where none was removed on J6P; J6P's dequantised tail is wrong on J6E."""
    package = Package.open(j6e.files["compile.deployable"])
    contract = {**package.contract, "removed": [], "platform": {**package.contract["platform"]}}
    facts = PlatformFacts.from_params({"platform": {**J6E, "tail": "float32"}, "preset": PICTURE})
    with pytest.raises(StageError) as caught:
        check_contract(contract, parse_model(package.model), facts)
    assert "tail" in caught.value.faults[0].what
    whole = load_model(j6e.files["quantize.model"])
    contract["outputs"] = [{**contract["outputs"][0], "dtype": "float32"}]
    with pytest.raises(StageError) as caught:
        check_contract(contract, whole, PlatformFacts.from_params({"platform": J6E, "preset": PICTURE}))
    assert "tail" in caught.value.faults[0].what


def test_memory_plan_of_the_contract(j6e: Road) -> None:
    """Every placement lies in the arena, and tensors alive at one step do not touch; checked from the JSON alone."""
    memory = j6e.record("compile.contract")["memory"]
    assert memory["lower_bound_bytes"] <= memory["peak_bytes"]
    entries = memory["placements"]
    assert max(entry["offset"] + entry["bytes"] for entry in entries) == memory["peak_bytes"]
    for index, left in enumerate(entries):
        for right in entries[index + 1 :]:
            if left["first"] <= right["last"] and right["first"] <= left["last"]:
                assert (
                    left["offset"] + left["bytes"] <= right["offset"]
                    or right["offset"] + right["bytes"] <= left["offset"]
                )
    assert {"image", "logits"} <= {entry["name"] for entry in entries}


def test_good_bundle(j6e: Road) -> None:
    path = j6e.files["package.bundle"]
    report = bundle.verify_bundle(path, threads=2, digest=hashlib.sha256(path.read_bytes()).hexdigest())
    assert (report.platform, report.runs, report.exact, report.max_difference) == ("j6e", 2, True, 0.0)
    assert set(report.entries) == set(bundle.ENTRIES)
    with pytest.raises(StageError):
        bundle.verify_bundle(path, digest="0" * 64)


def test_damaged_bundles_are_refused(j6e: Road, tmp_path: Path) -> None:
    data = j6e.files["package.bundle"].read_bytes()
    target = tmp_path / "bundle"
    step = len(data) // 60
    variants = [bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]]) for at in range(0, len(data), step)]
    variants += [data[: len(data) // 2], data[:-1], data + b"\0", b""]
    for damaged in variants:
        target.write_bytes(damaged)
        with pytest.raises(StageError):
            bundle.verify_bundle(target)


def _resealed(entries: Mapping[str, bytes]) -> bytes:
    data: bytes = bundle.write_bundle(entries)
    return data


def test_bundles_put_together_from_parts_are_refused(j6e: Road, tmp_path: Path) -> None:
    """Sums that fit are not enough: the parts must belong together."""
    entries = bundle.read_bundle(j6e.files["package.bundle"].read_bytes(), "x")
    road = quantised(calibrated().branch(tmp_path / "p"), {"tail": "float32", "runtime_input": GRAY})
    other = packaged(verified(compiled(road, {"platform": J6P}), {"count": 2}))
    others = bundle.read_bundle(other.files["package.bundle"].read_bytes(), "x")
    target = tmp_path / "bundle"
    for name in (bundle.PACKAGE, bundle.CONTRACT, bundle.VERIFIED, bundle.OUTPUTS):
        target.write_bytes(_resealed({**entries, name: others[name]}))
        with pytest.raises(StageError):
            bundle.verify_bundle(target)
    target.write_bytes(canonical_zip.write(entries))
    with pytest.raises(StageError) as caught:
        bundle.verify_bundle(target)
    assert len(caught.value.faults) == len(bundle.ENTRIES)


def test_a_package_that_computes_something_else_is_found(j6e: Road, tmp_path: Path) -> None:
    """One weight of the model is changed, and every digest is made to fit: running it tells."""
    entries = bundle.read_bundle(j6e.files["package.bundle"].read_bytes(), "x")
    package = Package.from_bytes(entries[bundle.PACKAGE], "x")
    model = onnx.ModelProto.FromString(package.model)
    biggest = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    raw = bytearray(biggest.raw_data)
    raw[len(raw) // 2] ^= 0x40
    biggest.raw_data = bytes(raw)
    changed = model.SerializeToString(deterministic=True)
    facts = {**package.contract["model"], "sha256": hashlib.sha256(changed).hexdigest()}
    forged = Package(contract={**package.contract, "model": facts}, model=changed).to_bytes()
    verified_record = json.loads(entries[bundle.VERIFIED])
    verified_record["deployable_sha256"] = hashlib.sha256(forged).hexdigest()
    contract = canonical_zip.read(forged, "x")["contract.json"]
    parts = {
        **entries,
        bundle.PACKAGE: forged,
        bundle.CONTRACT: contract,
        bundle.VERIFIED: json.dumps(verified_record).encode(),
    }
    target = tmp_path / "bundle"
    target.write_bytes(_resealed(parts))
    with pytest.raises(StageError) as caught:
        bundle.verify_bundle(target)
    assert "differs from the recorded" in caught.value.faults[0].what
