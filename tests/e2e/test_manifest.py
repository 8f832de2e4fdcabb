"""The manifest of a real build: valid against its schema, and everything that it has to answer years later is there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema

from npubake.pipeline.tools import InstalledTools
from tests.e2e.workspace import REPOSITORY, Workspace

SCHEMA = json.loads((REPOSITORY / "schemas" / "manifest.schema.json").read_text(encoding="utf-8"))
STATED = """\
  export_command: python export.py
preprocess:"""
PLATFORM = """\
platform: j6p
platform_options: {j6p: {sdk: {version: "3.7.0", bsp: "4.0", runtime: libdnn 3.1}}}
licence: {model: ours, data: CC0}"""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_real_builds_manifest_is_valid_and_complete(built: Workspace) -> None:
    built.edit("preprocess:", STATED)
    built.edit("samples: 16", "samples: 16\n  script_version: choose.py 3")
    built.edit("platform: generic", PLATFORM)
    result = built.build()
    assert result.json["targets"]["small"]["manifest"] == "build/small/manifest.json"
    manifest = json.loads((built.root / "build" / "small" / "manifest.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)
    told = manifest["reproducible"]
    assert told["origin"] == {
        "recipe": "small",
        "recipe_files": {"recipes/small.yaml": sha256(built.recipe)},
        "lock": sha256(built.root / "recipes" / "small.lock"),
        "model": sha256(built.root / "models" / "digits_mobilenet.onnx"),
        "export_command": "python export.py",
        "calibration_script": "choose.py 3",
        "licence_model": "ours",
        "licence_data": "CC0",
    }
    aim = {"target": "small", "platform": "j6p", "soc": "J6P", "march": "nash-p", "toolchain": "reference"}
    software = {"sdk": "3.7.0", "bsp": "4.0", "runtime_package": "libdnn 3.1"}
    assert told["target"].items() >= {**aim, **software}.items()
    contract = json.loads((built.root / "build" / "small" / "contract.json").read_text())
    assert contract["platform"].items() >= software.items()
    assert told["target"]["toolchain_version"]
    precision = told["precision"]
    assert (precision["lane"], precision["decided_by"]) == ("fp16_a8w8", "platform")
    assert sum(precision["counts"]["groups"].values()) > 20
    assert set(precision["counts"]["groups"]) == {"float16", "int16", "int8"}
    assert set(precision["counts"]["tensors"]) == {"int16", "uint8"}
    assert set(precision["counts"]["weights"]) == {"int8"}
    stated = [entry for entry in precision["overrides"] if entry["path"] != "tuning"]  # beside what tuning lifts
    assert [entry["groups"] for entry in stated] == [["/pool/GlobalAveragePool"]]
    assert told["calibration"]["samples"] == 16
    assert told["calibration"]["preset"]["resize"]["size"] == [28, 28]
    assert [entry["stride"][-2:] for entry in told["interface"]["inputs"]] == [[64, 1]]  # 28 pixels, aligned to 64
    assert {gate["boundary"] for gate in told["gates"]} == {"optimized", "quantized", "product"}
    assert told["metrics"].keys() == {"top1", "latency_ms", "fps", "power_w"}
    assert told["observed_on"]["features"]
    used = {name: found.version for name in told["tools"] if (found := InstalledTools().find(name)) is not None}
    assert told["tools"] == used
    assert {"onnx", "onnxruntime", "numpy", "protobuf", "pillow", "numba"} <= set(used)
    ran = {task["role"]: task["key"] for task in result.json["tasks"]}
    assert {task["role"]: task["key"] for task in told["tasks"]} == ran
    for artifact in told["artifacts"]:
        assert sha256(built.root / artifact["path"]) == artifact["digest"], artifact["path"]
    assert {Path(artifact["path"]).suffix for artifact in told["artifacts"]} >= {".bundle", ".npub", ".onnx", ".json"}


def test_bsp_and_runtime_package_are_in_compiles_key(built: Workspace) -> None:
    built.edit("platform: generic", 'platform: generic\nplatform_options: {generic: {sdk: {bsp: "4.0"}}}')
    assert built.build().ran() == ["compile", "package", "verify"]
    built.edit('bsp: "4.0"', 'bsp: "4.0", runtime: libdnn 3.1')
    assert built.build().ran() == ["compile", "package", "verify"]
