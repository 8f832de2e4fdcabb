"""Wrapper, binary and contract of one compile, by what each says; a bundle of them without the SDK."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from npubake.calibration.archive import ArchiveWriter
from npubake.errors import StageError
from npubake.toolchains import Probe
from npubake.toolchains.qualcomm.release import bundle
from npubake.toolchains.qualcomm.release.bundle import ENTRIES, verify_bundle, write_bundle
from npubake.toolchains.qualcomm.release.contract import build_contract, contract_bytes
from npubake.toolchains.qualcomm.release.pairing import require_files, require_metadata
from npubake.toolchains.recorded import Recorded, write_recorded
from tests.toolchains.qualcomm.release.test_contract import METADATA, PARAMS, RECORD

WRAPPER = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1],
metadata_props: ["ep_compatibility_info.QNNExecutionProvider" : "v2:6:2.51.0:5.51.0:0:77:0:0"]>
agraph (uint8[1,4,6,3] image, uint16[1,5] state) => (uint8[1,4,8] boxes, float[1,2] kind) {
  boxes, kind = com.microsoft.EPContext <
    embed_mode = 0, ep_cache_context = "model_ctx_qnn.bin", ep_sdk_version = "v2.51.0.1"> (image, state)
}"""
BINARY = b"a binary"


def files(text: str = WRAPPER, binary: bytes = BINARY) -> dict[str, bytes]:
    return {"wrapper": onnx.parser.parse_model(text).SerializeToString(), "binary": binary}


def contract(text: str = WRAPPER, **params: Any) -> dict[str, Any]:
    return build_contract(onnx.parser.parse_model(text), files(text), METADATA, RECORD, {**PARAMS, **params})


def said(given: dict[str, bytes], stated: dict[str, Any]) -> list[str]:
    with pytest.raises(StageError) as caught:
        require_files(stated, given)
    return [fault.what for fault in caught.value.faults]


def test_files_of_one_compile_fit() -> None:
    require_files(contract(), files())
    require_metadata(contract(), METADATA)


def test_other_bytes_are_named_by_file() -> None:
    (what,) = said(files(binary=b"another"), contract())
    assert hashlib.sha256(b"another").hexdigest() in what


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"model_ctx_qnn.bin"', '"other.bin"', "ep_cache_context"),
        ('"v2.51.0.1"', '"v2.30.0.9"', "ep_sdk_version"),
        ("v2:6:2.51.0:", "v2:6:2.30.0:", "ep_compatibility_info"),
        ("(image, state)\n}", "(image, state)\n  extra = Relu (kind)\n}", "nodes that the CPU would run"),
    ],
)
def test_what_the_wrapper_says_of_itself_must_be_the_contracts(old: str, new: str, word: str) -> None:
    text = WRAPPER.replace(old, new)
    assert text != WRAPPER
    (what,) = said(files(text), contract(text))
    assert word in what


def test_a_wrapper_with_other_edges_is_refused() -> None:
    other = WRAPPER.replace("uint16[1,5] state", "uint16[1,6] state")
    stated = {**contract(other), "inputs": contract()["inputs"]}
    (what,) = said(files(other), stated)
    assert "its inputs are" in what


def test_bytes_that_are_no_model_are_refused() -> None:
    given = {"wrapper": b"\xff\xff\xff", "binary": BINARY}
    assert any("no ONNX model" in what for what in said(given, contract()))


def test_nodes_on_the_cpu_may_stand_beside_where_the_recipe_names_them() -> None:
    text = WRAPPER.replace("(image, state)\n}", "(image, state)\n  extra = Relu (kind)\n}")
    require_files(contract(text, options={"cpu_nodes": ["relu"]}), files(text))


@pytest.mark.parametrize(
    ("path", "value", "label"),
    [
        (("soc_model",), "82", "SoC"),
        (("build_id",), "v2.30.0.1", "QNN build"),
        (("graphs", 0, "name"), "other", "graph"),
        (("graphs", 0, "outputs", 0, "scale"), 0.3, "outputs boxes"),
        (("graphs", 0, "outputs", 0, "offset"), -4, "outputs boxes"),
        (("graphs", 0, "inputs", 0, "dtype"), "uint8", "inputs state"),
        (("graphs", 0, "inputs", 0, "shape"), [5, 1], "inputs state"),
        (("graphs", 0, "inputs", 0, "name"), "renamed", "inputs"),
    ],
)
def test_what_the_binary_says_must_be_the_contracts(path: tuple[Any, ...], value: Any, label: str) -> None:
    metadata = copy.deepcopy(METADATA)
    holder: Any = metadata
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    with pytest.raises(StageError) as caught:
        require_metadata(contract(), metadata)
    assert [fault.what.partition(":")[0] for fault in caught.value.faults] == [label]


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Of a bundle that nothing here can run."""
    missing = Probe(name="qualcomm", usable=False, version="", why="no emulator", hint="install it")
    monkeypatch.setattr(bundle, "probe", lambda: missing)
    given, answered = {"state": np.zeros((1, 5), np.uint16)}, {"kind": np.ones((1, 2), np.float32)}
    runs = write_recorded(tmp_path / "recorded", [Recorded(example="e", inputs=given, outputs=answered)])
    with ArchiveWriter(tmp_path / "calibration") as archive:
        archive.json("samples.json", {"preset": PARAMS["preset"], "examples": []})
    made = {"model_ctx.onnx": files()["wrapper"], "model_ctx_qnn.bin": BINARY}
    recorded = (tmp_path / "recorded").read_bytes()
    verified = {
        "wrapper_sha256": hashlib.sha256(made["model_ctx.onnx"]).hexdigest(),
        "binary_sha256": hashlib.sha256(BINARY).hexdigest(),
        "recorded_sha256": hashlib.sha256(recorded).hexdigest(),
        "runs": runs,
    }
    return {
        **made,
        "contract.json": contract_bytes(contract()),
        "calibration.zip": (tmp_path / "calibration").read_bytes(),
        "verify.json": json.dumps(verified).encode(),
        "recorded.zip": recorded,
    }


def test_a_bundle_is_whole_and_says_why_nothing_was_run(entries: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "t.bundle"
    path.write_bytes(write_bundle(entries))
    report = verify_bundle(path)
    assert set(report.entries) == set(ENTRIES)
    assert (report.platform, report.runs, report.exact) == ("qcs9075", 0, False)
    assert "no emulator" in report.unexecuted


def test_every_flipped_byte_of_a_bundle_is_caught(entries: dict[str, bytes], tmp_path: Path) -> None:
    data, path = write_bundle(entries), tmp_path / "t.bundle"
    for at in range(0, len(data), max(1, len(data) // 97)):
        changed = bytearray(data)
        changed[at] ^= 0x04
        path.write_bytes(changed)
        with pytest.raises(StageError):
            verify_bundle(path)


@pytest.mark.parametrize("name", ["model_ctx_qnn.bin", "model_ctx.onnx", "recorded.zip"])
def test_parts_of_another_build_are_caught_although_the_sums_fit(
    entries: dict[str, bytes], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.bundle"
    path.write_bytes(write_bundle({**entries, name: entries[name] + b"\0"}))
    with pytest.raises(StageError) as caught:
        verify_bundle(path)
    assert any(name in fault.where for fault in caught.value.faults)
