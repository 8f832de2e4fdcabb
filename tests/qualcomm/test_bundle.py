"""The bundle of a compiled classifier: every flipped byte is caught, also without the SDK; with it, it runs again."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from npubake.errors import StageError
from npubake.toolchains import Probe, canonical_zip, opening
from npubake.toolchains.qualcomm.release import bundle
from npubake.toolchains.qualcomm.release.bundle import ENTRIES, read_bundle, verify_bundle, write_bundle
from npubake.toolchains.recorded import Recorded, read_recorded, write_recorded
from tests.qualcomm import needs_qnn
from tests.qualcomm.released import compiled, released

pytestmark = needs_qnn
Entries = dict[str, bytes]


@pytest.fixture(scope="module")
def data() -> bytes:
    return released().files["package_htp.bundle"].read_bytes()


@pytest.fixture
def without_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Probe(
        name="qualcomm", usable=False, version="", why="onnxruntime-qnn is not installed", hint="install it"
    )
    monkeypatch.setattr(bundle, "probe", lambda: missing)


def place(folder: Path, content: bytes) -> Path:
    path = folder / "t.bundle"
    path.write_bytes(content)
    return path


def sealed(entries: Entries) -> bytes:
    """A bundle by another hand: the contract and the record about these very files, and sums that fit."""
    contract: Any = json.loads(entries["contract.json"])
    verified: Any = json.loads(entries["verify.json"])
    for name, entry in (("wrapper", "model_ctx.onnx"), ("binary", "model_ctx_qnn.bin")):
        digest = hashlib.sha256(entries[entry]).hexdigest()
        contract["files"][name] |= {"sha256": digest, "bytes": len(entries[entry])}
        verified[f"{name}_sha256"] = digest
    verified["recorded_sha256"] = hashlib.sha256(entries["recorded.zip"]).hexdigest()
    verified["runs"] = [example.facts() for example in read_recorded(entries["recorded.zip"], "x")]
    stated = {"contract.json": json.dumps(contract).encode(), "verify.json": json.dumps(verified).encode()}
    return write_bundle({**entries, **stated})


def refused(folder: Path, content: bytes) -> StageError:
    with pytest.raises(StageError) as caught:
        verify_bundle(place(folder, content))
    return caught.value


def test_a_good_bundle_runs_again_to_the_bit(data: bytes, tmp_path: Path) -> None:
    report = verify_bundle(place(tmp_path, data), threads=2, digest=hashlib.sha256(data).hexdigest())
    assert (report.toolchain, report.platform, report.runs, report.exact) == ("qualcomm", "qcs9075", 4, True)
    assert report.unexecuted == ""
    assert set(report.entries) == set(ENTRIES)
    assert write_bundle(read_bundle(data, "x")) == data


def test_another_bundle_than_the_manifests_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        verify_bundle(place(tmp_path, data), digest="0" * 64)
    assert "wanted " + "0" * 64 in caught.value.faults[0].what


@pytest.mark.usefixtures("without_sdk")
@pytest.mark.parametrize("seed", range(8))
def test_flipped_bytes_anywhere_are_caught_without_the_sdk(data: bytes, seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    for _ in range(5):
        changed = bytearray(data)
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        refused(tmp_path, bytes(changed))


@pytest.mark.usefixtures("without_sdk")
@pytest.mark.parametrize("name", [*ENTRIES, "SHA256SUMS"])
def test_a_flipped_byte_of_each_entry_is_caught_without_the_sdk(data: bytes, name: str, tmp_path: Path) -> None:
    entries = canonical_zip.read(data, "x")
    at = data.index(entries[name]) + len(entries[name]) // 2
    changed = bytearray(data)
    changed[at] ^= 0x10
    refused(tmp_path, bytes(changed))


@pytest.mark.usefixtures("without_sdk")
def test_without_the_sdk_it_says_that_nothing_was_run_and_why(data: bytes, tmp_path: Path) -> None:
    report = verify_bundle(place(tmp_path, data))
    assert (report.runs, report.exact) == (0, False)
    assert "the emulator was not run" in report.unexecuted
    assert "onnxruntime-qnn is not installed" in report.unexecuted


@pytest.mark.usefixtures("without_sdk")
def test_a_bundle_that_was_cut_off_is_caught(data: bytes, tmp_path: Path) -> None:
    for keep in (0, 10, len(data) // 2, len(data) - 1):
        refused(tmp_path, data[:keep])
    refused(tmp_path, data + b"\0")


def test_the_binary_of_another_soc_is_caught_although_all_digests_fit(data: bytes, tmp_path: Path) -> None:
    other = compiled("82")
    entries = read_bundle(data, "x")
    entries["model_ctx_qnn.bin"] = other.files["compile_htp.binary"].read_bytes()
    error = refused(tmp_path, sealed(entries))
    assert "SoC: the binary says 82, the contract 77" in [fault.what for fault in error.faults]


@pytest.mark.usefixtures("without_sdk")
@pytest.mark.parametrize("where", ["attribute", "property"])
def test_a_wrapper_of_an_older_sdk_is_caught_although_all_digests_fit(data: bytes, where: str, tmp_path: Path) -> None:
    entries = read_bundle(data, "x")
    model = onnx.load_model_from_string(entries["model_ctx.onnx"])
    if where == "attribute":
        (stated,) = [entry for entry in model.graph.node[0].attribute if entry.name == "ep_sdk_version"]
        stated.s = b"v2.30.0.240101000000"
    else:
        (kept,) = [entry for entry in model.metadata_props if entry.key.startswith("ep_compatibility_info.")]
        kept.value = kept.value.replace("2.51.0", "2.30.0")
    entries["model_ctx.onnx"] = model.SerializeToString()
    error = refused(tmp_path, sealed(entries))
    assert any("2.30.0" in fault.what for fault in error.faults)


def test_weights_that_were_changed_are_found_by_running_it(data: bytes, tmp_path: Path) -> None:
    entries = read_bundle(data, "x")
    binary = bytearray(entries["model_ctx_qnn.bin"])
    for at in range(len(binary) // 2, len(binary) // 2 + 4096):  # the vendor's loader takes it without a word
        binary[at] ^= 0x55
    entries["model_ctx_qnn.bin"] = bytes(binary)
    assert refused(tmp_path, sealed(entries)).faults


def test_recorded_outputs_that_were_changed_are_found_by_running_it(data: bytes, tmp_path: Path) -> None:
    entries = read_bundle(data, "x")
    first, *others = read_recorded(entries["recorded.zip"], "x")
    other = Recorded(example=first.example, inputs=first.inputs, outputs={"logits": first.outputs["logits"] ^ 1})
    write_recorded(tmp_path / "forged", [other, *others])
    entries["recorded.zip"] = (tmp_path / "forged").read_bytes()
    error = refused(tmp_path, sealed(entries))
    assert [fault.where for fault in error.faults] == ["t.bundle: logits"]
    assert "the emulator differs from the record" in error.faults[0].what


@pytest.mark.usefixtures("without_sdk")
def test_other_examples_than_were_verified_are_refused(data: bytes, tmp_path: Path) -> None:
    entries = read_bundle(data, "x")
    verified = json.loads(entries["verify.json"])
    write_recorded(tmp_path / "none", [])
    none = (tmp_path / "none").read_bytes()
    verified["recorded_sha256"] = hashlib.sha256(none).hexdigest()
    forged = {**entries, "recorded.zip": none, "verify.json": json.dumps(verified).encode()}
    (fault,) = refused(tmp_path, write_bundle(forged)).faults
    assert fault.where == "t.bundle: recorded.zip"
    nothing = {**verified, "runs": []}
    (fault,) = refused(tmp_path, write_bundle({**forged, "verify.json": json.dumps(nothing).encode()})).faults
    assert fault.where == "t.bundle: recorded.zip"


BREAK: dict[str, Callable[[Any], None]] = {
    "no version": lambda contract: contract.pop("version"),
    "a later version": lambda contract: contract.update(version=2),
    "no files": lambda contract: contract.pop("files"),
    "a file of another name": lambda contract: contract["files"]["binary"].update(name="../model_ctx_qnn.bin"),
    "an edge without dtype": lambda contract: contract["inputs"][0].pop("dtype"),
    "no frame": lambda contract: contract["runtime_inputs"]["image"].pop("height"),
    "other preprocessing": lambda contract: contract["preprocessing"].update(channels="rgb"),
}


@pytest.mark.usefixtures("without_sdk")
@pytest.mark.parametrize("how", BREAK)
def test_a_contract_of_another_form_is_refused(data: bytes, how: str, tmp_path: Path) -> None:
    entries = read_bundle(data, "x")
    contract = json.loads(entries["contract.json"])
    BREAK[how](contract)
    entries["contract.json"] = json.dumps(contract).encode()
    assert refused(tmp_path, write_bundle(entries)).faults


def test_run_answers_from_the_emulator_and_says_so(data: bytes, tmp_path: Path) -> None:
    path = place(tmp_path, data)
    recorded = read_recorded(read_bundle(data, "x")["recorded.zip"], "x")[0]
    pixels = recorded.inputs["image"].reshape(28, 28)
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    done = opening.run(path, [("image", tmp_path / "digit.png")], None)
    contract = released().record("compile_htp.contract")["outputs"][0]
    wanted = (recorded.outputs["logits"].astype(np.float32) - contract["zero_point"]) * np.float32(contract["scale"][0])
    np.testing.assert_array_equal(done.outputs["logits"], wanted)
    assert any("emulator" in note for note in done.fed.notes)


def test_the_commands_open_it(data: bytes, tmp_path: Path) -> None:
    path = place(tmp_path, data)
    np.save(tmp_path / "x.npy", np.zeros((28, 28, 1), np.uint8))
    verify = command("verify", str(path), "--json")
    assert json.loads(verify.stdout)["runs"] == 4
    run = command("run", str(path), f"image={tmp_path / 'x.npy'}")
    assert "logits: float32 [1, 10]" in run.stdout
    assert "emulator" in run.stderr
    said = (run.stdout + run.stderr + verify.stdout).lower()
    assert "latency" not in said
    assert "seconds" not in said
    shutil.copy(path, tmp_path / "bad.bundle")
    broken = bytearray(data)
    broken[data.index(b"model_ctx_qnn.bin") + 5000] ^= 1
    (tmp_path / "bad.bundle").write_bytes(broken)
    assert command("verify", str(tmp_path / "bad.bundle"), status=None).returncode != 0


def command(*words: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "npubake", *words], capture_output=True, text=True, check=False)
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done
