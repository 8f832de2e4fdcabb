"""The table of the Qualcomm lanes: what it takes of a build, what it says of a gate, which recipe it builds."""

from __future__ import annotations

import sys
from dataclasses import astuple
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from npubake.recipe.loader import load_recipe

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return import_module("qualcomm")


def figure(sqnr: float) -> dict[str, Any]:
    return {"sqnr_db": sqnr, "cosine": 0.9, "max_abs": 1.0}


READ: dict[str, Any] = {
    "emulated": {
        "examples": 8,
        "outputs": {"boxes": figure(40.0), "scores": figure(20.04)},
        "agreement": {
            "outputs": {
                "boxes": {**figure(50.0), "largest_steps": 3},
                "scores": {**figure(30.0), "largest_steps": None},
            }
        },
        "boxes": {"matched": 35, "within_a_step": 6, "only_candidate": 4, "only_quantised": 1, "fraction": 0.94},
    },
    "quantized": {"outputs": {"boxes": figure(41.0), "scores": figure(21.0)}},
    "metadata": {"estimates": {"microseconds": {"estimate": 1500, "lower": 1, "upper": 9000}}},
    "trace": {"qnn_operators": {"Conv2d": 3}},
}


def task(role: str, **outputs: tuple[str, int]) -> dict[str, Any]:
    made = {port: {"digest": digest, "size": size} for port, (digest, size) in outputs.items()}
    return {"role": role, "outputs": made}


TASKS = [
    task("measure quantized", figures=("quantized", 1)),
    task("compile", binary=("-", 2048), metadata=("metadata", 1), trace=("trace", 1)),
    task("emulate", figures=("emulated", 1)),
    task("package"),  # it was skipped
]


def test_figures_are_of_their_own_stages(lanes: Any) -> None:
    found = lanes.figures(TASKS, {"coco_map": {"float": 0.5, "quantized": 0.25}}, READ.__getitem__)
    assert found["float_to_emulator"]["scores"]["sqnr_db"] == 20.04
    assert found["float_to_qdq"]["scores"]["sqnr_db"] == 21.0
    assert found["emulator_to_qdq"]["boxes"]["sqnr_db"] == 50.0
    assert (found["binary_bytes"], found["bundle_bytes"]) == (2048, None)
    assert (found["simulated_us"], found["qnn_operators"]) == (1500, {"Conv2d": 3})
    assert found["boxes"] == {"strict": 35, "within_a_step": 41, "alone": 5, "fraction": 0.94}
    assert found["float_artifact"] == {}


def test_a_build_that_came_nowhere_has_no_figures(lanes: Any) -> None:
    found = lanes.figures([], {}, READ.__getitem__)
    assert found["binary_bytes"] is found["boxes"] is found["simulated_us"] is None


def test_the_table_says_what_failed_and_leaves_out_what_nobody_has(lanes: Any) -> None:
    case = lanes.Case(recipe="yolo_640", soc="qcs9075", lane="a8w8")
    other = lanes.Case(recipe="yolo_640", soc="qcs6490", lane="fp16")
    figures = lanes.figures(TASKS, {"coco_map": {"float": 0.5, "quantized": 0.25}}, READ.__getitem__)
    rows = [
        lanes.Row(case=case, failed=("compiled scores sqnr_db 19",), figures=figures),
        lanes.Row(case=other, refused="no float there"),
    ]
    head, _, first, second = lanes.table(rows)
    columns = [cell.strip() for cell in head.split("|")]
    cells = dict(zip(columns, [cell.strip() for cell in first.split("|")], strict=True))
    assert cells["gates"] == "fail: compiled scores sqnr_db 19"
    assert cells["float → emulator, dB"] == "40.0 / 20.0"
    assert cells["steps at most"] == "3 / -"
    assert cells["boxes"] == "35 + 6, 5 alone"
    assert (cells["binary, KiB"], cells["simulated, ms"], cells["QDQ"]) == ("2", "1.50", "0.2500")
    assert "float artifact, dB" not in columns
    assert "no float there" in second
    assert len({line.count("|") for line in (head, first, second)}) == 1


def test_below_names_each_boundary_once(lanes: Any) -> None:
    gate = {"boundary": "compiled", "output": "scores", "figure": "sqnr_db", "value": 12.3456, "passed": False}
    checks = [gate, {**gate, "figure": "cosine", "value": None}, {**gate, "boundary": "optimized", "passed": True}]
    names, words = lanes.below(checks)
    assert names == ["compiled"]
    assert words == ["compiled scores sqnr_db 12.35", "compiled scores cosine -"]


EVERY = ("optimized", "calibrated", "quantized", "converted", "compiled", "product")


@pytest.mark.parametrize("loosened", [(), EVERY])
@pytest.mark.parametrize("recipe", ["yolo_640", "digits_mobilenet", "digits_vit"])
def test_its_recipes_are_recipes(lanes: Any, tmp_path: Path, recipe: str, loosened: tuple[str, ...]) -> None:
    case = lanes.Case(recipe=recipe, soc="qcs9075", lane="a16w8")
    for shipped in (ROOT / "recipes").glob("*.yaml"):
        (tmp_path / shipped.name).write_bytes(shipped.read_bytes())
    path = tmp_path / f"{case.name}.yaml"
    path.write_text(case.text(loosened))
    loaded = load_recipe(path)
    assert loaded.quant_config.lane == "a16w8"
    assert loaded.platforms == ("qcs9075",)
    judged = {name: astuple(gate) for name, gate in loaded.gates.items() if set(astuple(gate)) != {None}}
    assert {"converted", "compiled"} <= judged.keys() or judged == {}
    assert (judged == {}) is bool(loosened)
