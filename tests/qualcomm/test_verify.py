"""``verify_htp`` and ``package_htp`` on the compiled classifier: what is recorded, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import BuildError, GateError, StageError
from npubake.toolchains import canonical_zip
from npubake.toolchains.recorded import Recorded, read_recorded, write_recorded
from tests.qualcomm import needs_qnn
from tests.qualcomm.released import compiled, released, verified
from tests.toolchains.digits import Road

pytestmark = needs_qnn


def changed(port: str, data: bytes, folder: Path) -> Road:
    """The released road with one artifact of other bytes, before ``verify_htp``."""
    road = released().branch(folder)
    path = folder / "changed"
    path.write_bytes(data)
    return Road(folder=folder, files={**road.files, port: path})


def refused(port: str, data: bytes, folder: Path) -> BuildError:
    with pytest.raises(BuildError) as caught:
        verified(changed(port, data, folder))
    return caught.value


def test_the_record_tells_what_was_compared_and_of_which_bytes() -> None:
    road = released()
    record = road.record("verify_htp.record")
    files = {"wrapper": "compile_htp.wrapper", "binary": "compile_htp.binary", "recorded": "verify_htp.outputs"}
    for name, port in files.items():
        assert record[f"{name}_sha256"] == hashlib.sha256(road.files[port].read_bytes()).hexdigest()
    assert (record["exact"], record["repeated"], len(record["runs"])) == (False, 1, 4)
    (entry,) = record["comparisons"]
    told = road.record("emulate.figures")["agreement"]["outputs"]["logits"]
    assert (entry["output"], entry["max_difference"], entry["min_cosine"]) == (
        "logits",
        told["max_abs"],
        told["min_cosine"],
    )
    first = read_recorded(road.files["emulate.outputs"].read_bytes(), "x")[:4]
    assert [example.facts() for example in first] == record["runs"]


@pytest.mark.parametrize("place", [64, -64])
def test_a_flipped_byte_of_the_binary_is_no_longer_the_contracts(place: int, tmp_path: Path) -> None:
    data = bytearray(released().files["compile_htp.binary"].read_bytes())
    data[place] ^= 1
    error = refused("compile_htp.binary", bytes(data), tmp_path)
    assert isinstance(error, StageError)
    assert [fault.where for fault in error.faults] == ["model_ctx_qnn.bin"]


def test_a_wrapper_and_a_binary_of_two_builds_are_refused(tmp_path: Path) -> None:
    other = compiled("82").files["compile_htp.binary"].read_bytes()
    assert [fault.where for fault in refused("compile_htp.binary", other, tmp_path).faults] == ["model_ctx_qnn.bin"]


def test_a_contract_that_states_another_scale_or_soc_is_refused(tmp_path: Path) -> None:
    contract: Any = released().record("compile_htp.contract")
    contract["outputs"][0]["scale"] = [contract["outputs"][0]["scale"][0] * 2]
    contract["platform"]["soc_model"] = "82"
    error = refused("compile_htp.contract", json.dumps(contract).encode(), tmp_path)
    assert [fault.what.partition(":")[0] for fault in error.faults] == ["SoC", "outputs logits"]


def test_outputs_that_the_emulator_does_not_repeat_are_refused(tmp_path: Path) -> None:
    first, *others = read_recorded(released().files["emulate.outputs"].read_bytes(), "x")
    other = Recorded(example=first.example, inputs=first.inputs, outputs={"logits": first.outputs["logits"] ^ 1})
    write_recorded(tmp_path / "forged", [other, *others])
    error = refused("emulate.outputs", (tmp_path / "forged").read_bytes(), tmp_path)
    assert isinstance(error, StageError)
    assert [fault.where for fault in error.faults] == ["logits"]


def test_an_artifact_that_is_not_the_qdq_model_fails_as_a_gate(tmp_path: Path) -> None:
    figures: Any = released().record("emulate.figures")
    figures["agreement"]["outputs"]["logits"]["min_cosine"] = 0.8
    error = refused("emulate.figures", json.dumps(figures).encode(), tmp_path)
    assert isinstance(error, GateError)
    figures["agreement"]["outputs"]["logits"]["min_cosine"] = None  # NaN
    assert isinstance(refused("emulate.figures", json.dumps(figures).encode(), tmp_path), GateError)


def test_the_package_hands_on_what_was_verified() -> None:
    road = released()
    entries = canonical_zip.read(road.files["package_htp.bundle"].read_bytes(), "x")
    parts = {
        "model_ctx.onnx": "wrapper",
        "model_ctx_qnn.bin": "binary",
        "contract.json": "contract",
    }
    for entry, port in parts.items():
        data = road.files[f"compile_htp.{port}"].read_bytes()
        assert entries[entry] == data == road.files[f"package_htp.{port}"].read_bytes()
    assert entries["calibration.zip"] == road.files["samples"].read_bytes()
    assert set(entries) == {*parts, "calibration.zip", "verify.json", "recorded.zip", "SHA256SUMS"}
