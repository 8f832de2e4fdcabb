"""The manifest of the real classifier: valid, every property described, the repeating part apart from the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from npubake.report.manifest import (
    Aim,
    Artifact,
    Build,
    CalibrationData,
    Origin,
    TaskFacts,
    build_manifest,
    manifest_text,
)
from npubake.report.precision import Precision
from tests.toolchains.digits import GRAY, J6E, ROOT, calibrated, compiled, quantised, verified

SCHEMA = json.loads((ROOT / "schemas/manifest.schema.json").read_text(encoding="utf-8"))
DIGEST = "ab" * 32
CHECK = {"boundary": "quantized", "output": "logits", "figure": "cosine", "value": 0.9987, "threshold": 0.99,
         "passed": True, "warning": "", "detail": None}  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    road = quantised(calibrated().branch(tmp_path_factory.mktemp("manifest")), {"tail": "int32", "runtime_input": GRAY})
    road = verified(compiled(road, {"platform": J6E}), {"count": 2})
    machine = {"arch": "x86_64", "cpu": "Some CPU", "features": ["avx2", "fma"], "cpus": 2}
    task = TaskFacts(
        stage="observe", role="observe", key=DIGEST, outputs={"statistics": {"digest": DIGEST, "size": 5}},
        tools={"numpy": "2.4.6", "onnxruntime": "1.32.0"}, outcome="ran", seconds=1.23456, machine=machine,
    )  # fmt: skip
    return Build(
        origin=Origin(recipe="digits", recipe_files={"recipes/digits.yaml": DIGEST}, lock="", model=DIGEST),
        aim=Aim(target="digits_j6e", platform="j6e", soc="J6E", march="nash-e", toolchain="reference",
                toolchain_version="1", bsp="4.0"),
        precision=Precision.from_record(road.record("calibrate.record"), "platform", road.record("quantize.record")),
        calibration=CalibrationData(archive=DIGEST, samples=16, purpose="release", preset={"name": "custom"}),
        tasks=(task, replace(task, stage="verify", role="verify", machine={}, outcome="reused", seconds=0.0)),
        artifacts=(Artifact(path="b", digest=DIGEST, bytes=2), Artifact(path="a", digest=DIGEST, bytes=1)),
        contract=road.record("compile.contract"),
        verified=road.record("verify.record"),
        gates=(CHECK,),
        metrics={"top1": {"float": 0.98, "quantized": 0.975}},
        npubake="0.1.0",
        finished="2030-01-02T03:04:05Z",
        seconds=12.3456,
        host=machine,
    )  # fmt: skip


def test_valid_and_complete(build: Build) -> None:
    manifest = json.loads(manifest_text(build_manifest(build)))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)
    told = manifest["reproducible"]
    assert told["metrics"]["latency_ms"] == told["metrics"]["fps"] == told["metrics"]["power_w"] == "unmeasured"
    assert told["releasable"] == {"value": True, "reasons": []}
    assert told["interface"]["outputs"][0]["dtype"] == "int32"
    assert told["interface"]["removed"][0]["why"] == "tail int32"
    assert told["interface"]["platform_tail"] == "int32"
    assert "tail" not in told["interface"]  # a reader took it for the type of every output
    assert told["observed_on"] == {"arch": "x86_64", "features": ["avx2", "fma"]}
    assert told["tools"] == {"numpy": "2.4.6", "onnxruntime": "1.32.0"}
    assert [entry["path"] for entry in told["artifacts"]] == ["a", "b"]
    assert told["precision"]["counts"]["groups"]["int8"] > 5
    assert told["precision"]["counts"]["weights"].keys() == {"int8"}
    assert manifest["circumstances"]["seconds"] == 12.346


def test_wall_clock_facts_stay_out_of_the_repeating_part(build: Build) -> None:
    later = replace(
        build,
        finished="2031-01-01T00:00:00Z",
        seconds=99.0,
        host={"cpu": "another"},
        tasks=tuple(replace(task, outcome="restored", seconds=7.0) for task in build.tasks),
    )
    first, second = build_manifest(build), build_manifest(later)
    assert first["reproducible"] == second["reproducible"]
    assert first["circumstances"] != second["circumstances"]


def test_every_machine_is_named_once(build: Build) -> None:
    other = {"arch": "aarch64", "cpu": "Another CPU"}
    tasks = (*build.tasks[:1], replace(build.tasks[0], machine=other), replace(build.tasks[1], machine=other))
    told = build_manifest(replace(build, tasks=tasks))["circumstances"]
    assert told["machines"] == [dict(build.host), other]
    assert (told["host"], [task["machine"] for task in told["tasks"]]) == (0, [0, 1, 1])


def test_what_stands_against_release(build: Build) -> None:
    bad = replace(
        build,
        fast=True,
        calibration=replace(build.calibration, purpose="smoke"),
        gates=({**CHECK, "passed": False}, {**CHECK, "boundary": "product", "passed": False}),
    )
    told = build_manifest(bad)["reproducible"]["releasable"]
    assert told["value"] is False
    assert [reason.split()[0] for reason in told["reasons"]] == ["built", "calibration.purpose", "gate", "gate"]


def test_a_board_record_takes_the_place_of_unmeasured(build: Build) -> None:
    metrics = build_manifest(replace(build, board={"fps": 1465.8}))["reproducible"]["metrics"]
    assert (metrics["fps"], metrics["latency_ms"]) == (1465.8, "unmeasured")


def test_tools_of_restored_tasks_are_all_named(build: Build) -> None:
    tasks = (*build.tasks, replace(build.tasks[0], role="other", tools={"numpy": "2.3.0"}))
    assert build_manifest(replace(build, tasks=tasks))["reproducible"]["tools"]["numpy"] == "2.3.0, 2.4.6"


def test_an_unknown_key_or_a_missing_one_is_no_manifest(build: Build) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    manifest: Any = json.loads(manifest_text(build_manifest(build)))
    manifest["reproducible"]["extra"] = 1
    assert not validator.is_valid(manifest)
    del manifest["reproducible"]["extra"]
    assert validator.is_valid(manifest)
    for name in list(manifest["reproducible"]):
        rest = {key: value for key, value in manifest["reproducible"].items() if key != name}
        assert not validator.is_valid({**manifest, "reproducible": rest}), name


def _properties(schema: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for name, entry in schema.get("properties", {}).items():
            yield f"{path}.{name}", entry
            yield from _properties(entry, f"{path}.{name}")
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                yield f"{path}.{name}", schema[name]
                yield from _properties(schema[name], f"{path}.{name}")


def test_every_property_is_described() -> None:
    found = dict(_properties(SCHEMA))
    assert len(found) > 100
    assert [path for path, entry in found.items() if not entry.get("description", "").endswith((".", "..."))] == []


def test_text_is_canonical(build: Build, tmp_path: Path) -> None:
    text = manifest_text(build_manifest(build))
    assert text.endswith("}\n")
    told = json.loads(text)
    assert list(told) == ["reproducible", "circumstances", "version"]
    first = {name: json.loads(json.dumps(told[name], sort_keys=True)) for name in told}
    assert json.dumps(first, indent=1, ensure_ascii=False) + "\n" == text
    assert manifest_text(told) == text
    with pytest.raises(ValueError, match="JSON"):
        manifest_text({"value": float("nan")})
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
