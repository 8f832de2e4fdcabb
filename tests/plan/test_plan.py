"""The plan, made from a recipe on paper: what each stage reads, what targets share, what comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npubake.errors import ToolchainError
from npubake.pipeline.task import Task
from npubake.plan import parameters
from npubake.plan.road import plan
from npubake.plan.subject import Subject
from npubake.platforms import load_platforms
from npubake.recipe.data import ListedFile, Listing
from npubake.recipe.loader import load_recipe
from npubake.recipe.targets import targets
from tests.recipe.writing import write

RECIPE = """\
version: 1
model: {path: model.onnx}
preset: yolo_640
calibration: {data: pictures}
"""
PLATFORMS = load_platforms(Path(__file__).parents[2])


def subjects(folder: Path, text: str = RECIPE, name: str = "r.yaml", platforms: str = "[j6e, j6p]") -> list[Subject]:
    recipe = load_recipe(write(folder, name, f"{text}platforms: {platforms}\n"))
    file = ListedFile(name="a.png", digest="0" * 64, path=folder / "a.png")
    listing = Listing(kind="images", examples=({"": "a.png"},), files=(file,))
    return [
        Subject(target=target, preprocessing=recipe.preprocessing, calibration=listing)
        for target in targets(recipe, PLATFORMS)
    ]


def ids(tasks: tuple[Task, ...], stage: str) -> set[str]:
    return {task.id for task in tasks if task.stage.name == stage}


def test_what_is_at_its_default_is_left_out(tmp_path: Path) -> None:
    (subject,) = subjects(tmp_path, platforms="[generic]")
    assert parameters.of_import(subject) == {}
    assert parameters.of_samples(subject).keys() == {"preset"}
    assert parameters.of_calibrate(subject).keys() == {"lane", "image_inputs"}
    assert parameters.of_quantize(subject) == {}
    assert parameters.of_compile(subject).keys() == {"platform", "preset"}


@pytest.mark.parametrize(
    ("line", "stage", "changed"),
    [
        ("model: {path: model.onnx, baseline_cosine: 0.999}", "import", {"baseline_cosine": 0.999}),
        ("quant_config: {calibration: {asymmetric: false}}", "calibrate", {"calibration": {"asymmetric": False}}),
        (
            "quant_config: {calibration: {granularity: per_channel}}",
            "check",
            {"calibration": {"granularity": "per_channel"}},
        ),
        ("quant_config: {bits: {roles: {head: int16}}}", "check", {"bits": {"roles": {"head": "int16"}}}),
        ("remove: {outputs: [Dequantize]}", "quantize", {"remove": {"outputs": ["Dequantize"]}}),
        ("platform_options: {generic: {output_no_padding: true}}", "compile", {"options": {"output_no_padding": True}}),
    ],
)
def test_a_choice_reaches_the_stage_that_reads_it(
    tmp_path: Path, line: str, stage: str, changed: dict[str, Any]
) -> None:
    key = line.partition(":")[0]
    text = "".join(kept + "\n" for kept in RECIPE.splitlines() if not kept.startswith(f"{key}:")) + line + "\n"
    (before,), (after,) = subjects(tmp_path, platforms="[generic]"), subjects(tmp_path, text, platforms="[generic]")
    found = getattr(parameters, f"of_{stage}")
    assert found(after) == {**found(before), **changed}


def test_a_layout_that_a_recipe_states_reaches_samples_and_calibrate(tmp_path: Path) -> None:
    text = RECIPE.replace("{path: model.onnx}", "{path: model.onnx, inputs: {x: {layout: NHWC}}}")
    (subject,) = subjects(tmp_path, text, platforms="[generic]")
    assert parameters.of_samples(subject)["inputs"] == {"x": {"layout": "NHWC"}}
    assert parameters.of_calibrate(subject)["image_inputs"]["layouts"] == {"x": "NHWC"}


def test_platforms_share_all_that_reads_no_platform(tmp_path: Path) -> None:
    tasks = plan(subjects(tmp_path), tmp_path)
    for stage in ("import", "optimize", "samples", "transform"):
        assert len(ids(tasks, stage)) == 1, stage
    assert len(ids(tasks, "observe")) == 2  # the optimised graph, and the transformed one
    for stage in ("check", "calibrate", "quantize", "compile", "package"):
        assert len(ids(tasks, stage)) == 2, stage


def test_names_reach_no_task(tmp_path: Path) -> None:
    one = plan(subjects(tmp_path, name="one.yaml"), tmp_path)
    other = plan(subjects(tmp_path, name="other.yaml"), tmp_path)
    assert [task.id for task in one] == [task.id for task in other]


def test_every_check_comes_before_any_inference(tmp_path: Path) -> None:
    stages = [task.stage.name for task in plan(subjects(tmp_path), tmp_path)]
    assert set(stages[:4]) == {"import", "optimize", "check"}


def test_the_optimised_model_is_measured_once_the_original_is_known_to_be_finite(tmp_path: Path) -> None:
    """What a model makes of NaN itself is one fault, of observe, and none of optimize."""
    tasks = plan(subjects(tmp_path, platforms="[generic]"), tmp_path)
    (measure,) = [task for task in tasks if task.name == "measure optimized"]
    assert ids(tasks, "observe") & set(measure.predecessors())


def test_toolchains_without_a_road_are_refused_target_by_target(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as refused:
        plan(subjects(tmp_path, f"{RECIPE}toolchain: horizon\n"), tmp_path)
    assert [fault.where for fault in refused.value.faults] == ["r_j6e_horizon", "r_j6p_horizon"]
    assert all(fault.hint for fault in refused.value.faults)


def test_runtime_options_reach_no_task(tmp_path: Path) -> None:
    stated = "runtime_options: {queue: 3, note: [a, {b: 1}]}\n"
    before, after = plan(subjects(tmp_path), tmp_path), plan(subjects(tmp_path, RECIPE + stated), tmp_path)
    assert [task.id for task in before] == [task.id for task in after]
    (subject, *_) = subjects(tmp_path, RECIPE + stated)
    assert subject.target.recipe.runtime_options == {"queue": 3, "note": ["a", {"b": 1}]}


@pytest.mark.parametrize(
    ("stated", "transformed"),
    [
        ("", True),
        ("quant_config: {lane: a16w8}\n", False),
        ("quant_config: {lane: a16w8, tuning: {level: best}}\n", True),
        ("quant_config: {tuning: {level: none}}\n", False),
        ("quant_config: {tuning: {level: none}, equivalent_transformation: {}}\n", True),
        ("quant_config: {equivalent_transformation: false}\n", False),
        ("quant_config: {tuning: {level: best}, equivalent_transformation: false}\n", False),
    ],
)
def test_where_a_transformation_is_tried(tmp_path: Path, stated: str, transformed: bool) -> None:
    tasks = plan(subjects(tmp_path, RECIPE + stated), tmp_path)
    assert bool(ids(tasks, "transform")) == transformed
