"""The plan of qualcomm targets: what check reads, what is shared, the road of one binary for several SoCs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npubake.pipeline.task import Output, Task
from npubake.plan.road import plan
from npubake.plan.subject import Subject
from tests.plan.test_plan import RECIPE, subjects

PAIR = "[qcs9075+qcs8275]"
OPTIONS = "toolchain_options: {qualcomm: %s}\n"


def roles(made: list[Subject], folder: Path) -> dict[str, Task]:
    return {task.name: task for task in plan(made, folder)}


def params(folder: Path, stage: str, more: str = "", platforms: str = "[qcs9075]") -> dict[str, Any]:
    made = roles(subjects(folder, RECIPE + more, platforms=platforms), folder)
    return dict(made[stage].params)


def test_check_reads_the_refusals_facts_and_no_more(tmp_path: Path) -> None:
    found = params(tmp_path, "check")
    assert found["toolchain"] == "qualcomm"
    assert found["platform"]["march"] == "v73"
    assert "w4a16" in found["platform"]["lanes"]
    assert {"cpu_nodes", "quantiser", "calibration"}.isdisjoint(found)
    assert params(tmp_path, "check", OPTIONS % "{cpu_nodes: [a]}")["cpu_nodes"] == ["a"]
    plain = params(tmp_path, "check", platforms="[generic]")
    assert "toolchain" not in plain
    assert {"lanes", "march"}.isdisjoint(plain["platform"])


def test_only_aimet_is_asked_about_the_method(tmp_path: Path) -> None:
    method = "quant_config: {calibration: {method: mse}}\n"
    assert "calibration" not in params(tmp_path, "check", method)
    by_aimet = params(tmp_path, "check", method + OPTIONS % "{quantiser: aimet}")
    assert (by_aimet["quantiser"], by_aimet["calibration"]) == ("aimet", {"method": "mse"})


def test_two_socs_share_all_but_what_is_compiled(tmp_path: Path) -> None:
    tasks = plan(subjects(tmp_path, platforms="[qcs9075, qcs8275]"), tmp_path)
    own = {task.stage.name for task in tasks if len(task.targets) == 1}
    assert own == {"check", "probe", "compile_htp", "emulate", "gate", "verify_htp", "package_htp"}


@pytest.mark.parametrize("stage", ["compile float", "compile"])
def test_each_soc_of_a_pair_is_compiled_alone_as_its_own_target_is(tmp_path: Path, stage: str) -> None:
    pair = roles(subjects(tmp_path, platforms=PAIR), tmp_path)
    for soc, model, arch in (("qcs9075", "77", "v73"), ("qcs8275", "82", "v75")):
        alone = roles(subjects(tmp_path, platforms=f"[{soc}]"), tmp_path)
        assert pair[f"{stage} {soc}"].params == alone[stage].params
        platform = pair[f"{stage} {soc}"].params["platform"]
        assert (platform["soc_model"], platform["march"]) == (model, arch)


def test_the_binary_of_a_pair_is_released_once_its_parts_are_judged(tmp_path: Path) -> None:
    made = roles(subjects(tmp_path, platforms=PAIR), tmp_path)
    whole = made["compile"].params["platform"]
    assert (whole["soc_model"], whole["march"]) == ("77,82", "v73,v75")
    assert "compile float" not in made  # nothing runs it
    figures = [item.task for item in made["gate compiled"].inputs["figures"] if isinstance(item, Output)]
    assert figures == [made["emulate qcs9075"].id, made["emulate qcs8275"].id]
    assert made["gate compiled"].params["parts"] == ["qcs9075", "qcs8275"]
    files = [item.path for name in ("emulate qcs9075", "emulate qcs8275") for item in made[name].publish]
    assert len(set(files)) == 2
    verified = made["verify"]
    assert made["gate compiled"].id in verified.after
    (binary,), (part,) = verified.inputs["binary"], verified.inputs["part_binary"]
    assert isinstance(binary, Output)
    assert isinstance(part, Output)
    assert (binary.task, part.task) == (made["compile"].id, made["compile qcs9075"].id)


def test_one_soc_has_no_parts(tmp_path: Path) -> None:
    made = roles(subjects(tmp_path, platforms="[qcs9075]"), tmp_path)
    assert "part_binary" not in made["verify"].inputs
    assert "parts" not in made["gate compiled"].params
    assert [name for name in made if name.startswith("compile")] == ["compile float", "compile"]


def test_an_soc_without_float_has_no_float_artifact(tmp_path: Path) -> None:
    made = roles(subjects(tmp_path, platforms="[qcs6490]"), tmp_path)
    assert {"compile float", "gate converted"}.isdisjoint(made)
    assert "gate compiled" in made
    three = roles(subjects(tmp_path, platforms="[qcs9075+qcs6490]"), tmp_path)
    assert {"compile float qcs9075", "gate converted"}.isdisjoint(three)


@pytest.mark.parametrize(
    ("more", "judged"),
    [
        ("", {"cosine": 0.99, "sqnr_db": 20.0}),
        ("metric: {name: coco_map, data: v}\n", {"cosine": 0.99, "sqnr_db": 20.0, "boxes_matched": 0.9}),
        (
            "metric: {name: coco_map, data: v}\ngates: {compiled: {boxes_matched: 0.75, cosine: null}}\n",
            {"sqnr_db": 20.0, "boxes_matched": 0.75},
        ),
        (
            "metric: {name: coco_map, data: v}\ngates: {compiled: {boxes_matched: null}}\n",
            {"cosine": 0.99, "sqnr_db": 20.0},
        ),
    ],
)
def test_boxes_are_judged_where_the_metric_knows_boxes(tmp_path: Path, more: str, judged: dict[str, float]) -> None:
    made = roles(subjects(tmp_path, RECIPE + more, platforms="[qcs9075]"), tmp_path)
    assert made["gate compiled"].params["thresholds"] == judged
    assert "boxes_matched" not in made["gate quantized"].params["thresholds"]


def test_the_compiler_is_asked_once_check_has_nothing_to_refuse(tmp_path: Path) -> None:
    made = roles(subjects(tmp_path, platforms="[qcs9075]"), tmp_path)
    assert made["probe"].after == (made["check"].id,)
