"""The road of a qualcomm target that AIMET quantises: what stands in place of calibrate and tune, and what reads it."""

from __future__ import annotations

from pathlib import Path

from npubake.pipeline.task import Output, Task
from npubake.plan.road import plan
from tests.plan.test_plan import RECIPE, subjects

AIMET = f"{RECIPE}toolchain_options: {{qualcomm: {{quantiser: aimet}}}}\n"


def road(folder: Path, text: str = AIMET, platforms: str = "[qcs9075]") -> dict[str, Task]:
    """The tasks of the first target, by role."""
    given = subjects(folder, text, platforms=platforms)
    target = given[0].name
    return {task.name: task for task in plan(given, folder) if target in task.targets}


def read(task: Task, port: str) -> list[tuple[str, str]]:
    return [(entry.task, entry.port) for entry in task.inputs[port] if isinstance(entry, Output)]


def test_aimet_stands_in_place_of_our_own_quantiser(tmp_path: Path) -> None:
    made = road(tmp_path)
    assert made.keys().isdisjoint({"calibrate", "transform", "tune"})
    assert made["quantise_aimet"].inputs.keys() == {"model", "graph", "samples"}
    assert road(tmp_path, RECIPE).keys() >= {"calibrate", "tune"}
    assert "quantise_aimet" not in road(tmp_path, RECIPE)


def test_adapt_and_the_gate_behind_calibration_read_its_model(tmp_path: Path) -> None:
    made = road(tmp_path)
    source = made["quantise_aimet"].id
    assert read(made["adapt"], "quantised") == [(source, "model")]
    assert read(made["adapt"], "quantised_record") == [(source, "record")]
    assert made["adapt"].inputs.keys() == {"model", "graph", "quantised", "quantised_record"}
    assert read(made["measure calibrated"], "candidate") == [(source, "model")]
    assert read(made["measure calibrated"], "candidate_record") == [(source, "record")]


def test_it_reads_the_lane_the_architecture_and_what_the_recipe_says_of_ranges_and_weights(tmp_path: Path) -> None:
    assert road(tmp_path)["quantise_aimet"].params == {"lane": "a8w8", "march": "v73"}
    config = "quant_config: {lane: a16w8, calibration: {method: mse}, weights: {bits: 16}}\n"
    assert road(tmp_path, AIMET + config)["quantise_aimet"].params == {
        "lane": "a16w8",
        "march": "v73",
        "method": "mse",
        "weight_bits": 16,
    }


def test_nothing_starts_before_check_observe_and_the_probe_are_content(tmp_path: Path) -> None:
    made = road(tmp_path)
    assert set(made["quantise_aimet"].after) == {made[name].id for name in ("check", "probe", "observe")}


def test_what_it_publishes(tmp_path: Path) -> None:
    published = {entry.port: Path(entry.path).name for entry in road(tmp_path)["quantise_aimet"].publish}
    assert published == {
        "model": "r_qcs9075_aimet_model.onnx",
        "encodings": "r_qcs9075.encodings",
        "record": "aimet.json",
    }
