"""What the manifest says of a vendor's artifact: valid, labelled, its checklist answered by gates or left open."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from npubake.report.compiled import Compilation, compiled_block
from npubake.report.manifest import Aim, Build, CalibrationData, Origin, TaskFacts, build_manifest, manifest_text
from npubake.report.precision import Precision
from tests.report.compiled import ADAPTED, CONTRACT, DIGEST, LICENCE, METADATA, VERIFIED
from tests.toolchains.digits import ROOT

SCHEMA = json.loads((ROOT / "schemas/manifest.schema.json").read_text(encoding="utf-8"))
MADE = Compilation(
    contract=CONTRACT, adapted=ADAPTED, metadata=METADATA, verified=VERIFIED, baseline=None, licence=LICENCE
)


def check(boundary: str, passed: bool = True) -> dict[str, Any]:
    return {"boundary": boundary, "output": "logits", "figure": "cosine", "value": 0.995, "threshold": 0.99,
            "passed": passed, "warning": "", "detail": None}  # fmt: skip


def manifest(made: Compilation, precision: Precision) -> Any:
    checks = (check("compiled"), check("product"))
    machine = {"arch": "x86_64", "features": []}
    task = TaskFacts(stage="observe", role="observe", key=DIGEST, outputs={}, tools={}, outcome="ran", seconds=1.0,
                     machine=machine)  # fmt: skip
    build = Build(
        origin=Origin(recipe="r", recipe_files={}, lock="", model=DIGEST),
        aim=Aim(target="t", platform="qcs9075", soc="QCS9100", march="v73", toolchain="qualcomm",
                toolchain_version="2.7.0"),
        precision=precision,
        calibration=CalibrationData(archive=DIGEST, samples=16, purpose="release", preset={}),
        tasks=(task,), artifacts=(), contract=made.contract, verified=made.verified, gates=checks, metrics={},
        npubake="0.1.0", finished="2030-01-02T03:04:05Z", seconds=1.0, host=machine,
        compiled=compiled_block(made, checks),
    )  # fmt: skip
    return json.loads(manifest_text(build_manifest(build)))


def test_a_manifest_of_a_compiled_artifact_is_valid_and_tells_what_it_is() -> None:
    told = manifest(MADE, Precision.from_adapted(ADAPTED, "recipe", None, {}))
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    made = told["reproducible"]["compiled"]
    assert made["hardware"]["soc_models"] == [77]
    assert made["build"]["qnn_build_id"] == "v2.51.0.1"
    assert made["files"]["binary"]["sha256"] == DIGEST
    assert made["coverage"] == {"activations": 4, "quantized": 3, "float": [{"tensor": "d", "why": "no kernel"}]}
    assert made["emulator"]["agreement"]["outputs"]["logits"]["largest_steps"] == 2
    assert made["emulator"]["parts"] == []
    assert made["licence"]["files"][0]["sha256"] == DIGEST
    assert "not a latency" in made["estimates"]["label"]
    assert told["reproducible"]["metrics"]["latency_ms"] == "unmeasured"
    assert {"memory", "platform_tail"}.isdisjoint(told["reproducible"]["interface"])


def test_an_soc_that_the_compiler_does_not_simulate_has_no_estimates() -> None:
    told = manifest(replace(MADE, metadata={}), Precision.from_adapted(ADAPTED, "recipe", None, {}))
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert told["reproducible"]["compiled"]["estimates"] is None


@pytest.mark.parametrize(
    ("baseline", "gates", "states"),
    [
        (None, [], ["open", "not asked", "not asked", "not asked", "open", "done", "open"]),
        (0.9999, [check("compiled")], ["done", "not asked", "done", "not asked", "open", "done", "open"]),
        (None, [check("converted", passed=False), check("product")],
         ["open", "failed", "not asked", "done", "open", "done", "open"]),
    ],
)  # fmt: skip
def test_the_checklist_is_answered_by_the_gates(
    baseline: float | None, gates: list[dict[str, Any]], states: list[str]
) -> None:
    items = compiled_block(replace(MADE, baseline=baseline), gates)["checklist"]
    assert [item["state"] for item in items] == states
    assert items[4]["where"] == "on the board: feed recorded.zip"
    for item in items[1:4]:
        figures = [found for found in gates if found["boundary"] == item["item"]]
        assert [entry["value"] for entry in item["figures"]] == [entry["value"] for entry in figures]


@pytest.mark.parametrize(("bsp", "state", "where"), [("", "open", "states no BSP"), ("QLI 1.5", "done", "contract")])
def test_versions_are_recorded_only_where_the_recipe_states_the_bsp(bsp: str, state: str, where: str) -> None:
    contract = {**CONTRACT, "platform": {"platform": "qcs9075", "bsp": bsp}}
    item = compiled_block(replace(MADE, contract=contract), [])["checklist"][-1]
    assert item["state"] == state
    assert where in item["where"]


def test_precision_is_what_the_compiler_was_given() -> None:
    decided = {"lane": "a16w8", "counts": {"tensors": {"int16": 9}, "weights": {"int8": 9}, "groups": {"int16": 7}},
               "overrides": [], "float_groups": [], "warnings": ["of calibrate"]}  # fmt: skip
    found = Precision.from_adapted(ADAPTED, "platform", decided, {})
    assert found.counts == {"tensors": {"uint16": 2, "uint8": 1}, "weights": {"int8": 1}, "groups": {"int16": 7}}
    assert found.warnings == ("of calibrate", "look at d")
    assert (found.lane, found.decided_by) == ("a16w8", "platform")


def test_a_lane_in_float_names_every_group_as_float() -> None:
    adapted = {**ADAPTED, "lane": "fp16", "tensors": {}, "weights": {}}
    found = Precision.from_adapted(adapted, "recipe", None, {"conv": "conv", "relu": "activation"})
    assert found.counts == {"tensors": {}, "weights": {}, "groups": {"float16": 2}}
    assert [(entry["group"], entry["kind"], entry["precision"]) for entry in found.float_groups] == [
        ("conv", "conv", "float16"),
        ("relu", "activation", "float16"),
    ]


def test_the_manifest_of_one_binary_for_two_socs_says_that_its_parts_were_run() -> None:
    hardware = {**CONTRACT["htp"], "soc_models": [77, 82], "arch": ["v73", "v75"], "soc_model": "77,82"}
    contract = {**CONTRACT, "htp": hardware, "platform": {"platform": "qcs9075+qcs8275", "bsp": ""}}
    told = manifest(replace(MADE, contract=contract), Precision.from_adapted(ADAPTED, "recipe", None, {}))
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert told["reproducible"]["compiled"]["emulator"]["parts"] == ["qcs9075", "qcs8275"]
