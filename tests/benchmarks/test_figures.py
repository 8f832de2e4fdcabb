"""The benchmark's own arithmetic and its promises: the figure that is reported, and two sides that share no source."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from npubake.plan import parameters
from tests.plan.test_parameters import subject

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "benchmarks"


@pytest.fixture
def benchmark_module() -> Iterator[Any]:
    """Imports a script of benchmarks/, which are no package, and forgets them all afterwards."""
    sys.path.insert(0, str(FOLDER))
    before = set(sys.modules)
    yield import_module
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_sqnr_is_pooled(benchmark_module: Any) -> None:
    reference = np.array([[3, -4], [1000, 0]], np.float32)
    found = np.array([[3, -2], [999, 0]], np.float32)
    signal, noise = Fraction(9 + 16 + 1000**2), Fraction(4 + 1)
    expected = 10 * math.log10(signal / noise)
    assert benchmark_module("floating").sqnr_db(reference, found) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("found", "expected"),
    [([1.0, 2.0], math.inf), ([1.0, math.nan], None), ([math.inf, 2.0], None), ([0.0, 0.0], 0.0)],
)
def test_sqnr_at_its_ends(benchmark_module: Any, found: list[float], expected: float | None) -> None:
    reference = np.array([1.0, 2.0], np.float32)
    assert benchmark_module("floating").sqnr_db(reference, np.array(found, np.float32)) == expected


def test_the_sides_share_no_source(benchmark_module: Any) -> None:
    pictures = benchmark_module("pictures")
    for table in (pictures.PHOTOGRAPHS, pictures.FONTS):
        assert not set(table["calibration"]) & set(table["held_out"])
    for table in (pictures.MORE_PHOTOGRAPHS, pictures.SCANS, pictures.TEXTS, pictures.SEEDS, pictures.PICTURES):
        assert table["calibration"] != table["held_out"]
    used = {}
    for side, folder in pictures.PICTURES.items():
        labels = json.loads((ROOT / "data" / "digits" / folder / "labels.json").read_text(encoding="utf-8"))
        wheels = {Path(name).stem for name in (*pictures.PHOTOGRAPHS[side], pictures.MORE_PHOTOGRAPHS[side])}
        used[side] = {row["photograph"] for row in labels["images"]} | wheels
    assert not used["calibration"] & used["held_out"]


def test_hard_swish_is_put_back(benchmark_module: Any) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        f (float[2, 5] x) => (float[2, 5] y) {
            h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)
            s = Mul (x, h)
            g = HardSigmoid <alpha = 0.2> (s)
            y = Mul (s, g)
        }
    """)
    values = np.linspace(-5, 5, 10, dtype=np.float32).reshape(2, 5)
    (before,) = ReferenceEvaluator(model).run(None, {"x": values})
    benchmark_module("models").restore_hard_swish(model.graph)
    onnx.checker.check_model(model, full_check=True)
    (after,) = ReferenceEvaluator(model).run(None, {"x": values})
    assert [node.op_type for node in model.graph.node] == ["HardSwish", "HardSigmoid", "Mul"]
    np.testing.assert_allclose(np.asarray(after), np.asarray(before), rtol=1e-5, atol=1e-6)


def test_tables_replace_what_stands_between_their_markers(benchmark_module: Any, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("a\n<!-- benchmark one -->\nold\n<!-- end -->\nb\n<!-- benchmark two -->\n<!-- end -->\nc\n")
    quantise = benchmark_module("quantise")
    quantise.write(document, {"two": "2", "one": "1"})
    expected = "a\n<!-- benchmark one -->\n1\n<!-- end -->\nb\n<!-- benchmark two -->\n2\n<!-- end -->\nc\n"
    assert document.read_text() == expected
    with pytest.raises(SystemExit):
        quantise.write(document, {"three": "3"})


def test_the_document_has_a_place_for_every_table(benchmark_module: Any) -> None:
    quantise = benchmark_module("quantise")
    tables = quantise.report(quantise.Results(peers={}, own={}), [])
    text = quantise.DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in tables if f"<!-- benchmark {name} -->" not in text] == []


def test_seconds_of_a_loaded_machine_are_not_shown(benchmark_module: Any) -> None:
    quantise = benchmark_module("quantise")
    result = {"process_seconds": 2.0, "peak_mb": 300.4, "sqnr_db": [20.0]}
    assert quantise.cost({**result, "load": 1.0}) == "2.0 s, 300 MB"
    assert quantise.cost({**result, "load": 6.0}) == "not timed, 300 MB"
    assert quantise.cost({"failed": "ValueError: no", "load": 1.0}) == "-"


def test_a_cache_without_models_says_how_to_make_them(benchmark_module: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"orientation\.npz.*models\.py"):
        benchmark_module("models").subjects(tmp_path)


def test_variants_and_rungs_have_names_of_their_own(benchmark_module: Any) -> None:
    variants = benchmark_module("variants").VARIANTS
    assert len({(entry.tool, entry.title, entry.lane) for entry in variants}) == len(variants)
    rungs = benchmark_module("rungs")
    names = [entry.name for entry in (*rungs.RUNGS, *rungs.TECHNIQUES)]
    assert len(set(names)) == len(names)


def test_rungs_run_the_stages_that_a_build_of_the_same_recipe_runs(benchmark_module: Any, tmp_path: Path) -> None:
    for rung in benchmark_module("rungs").RUNGS:
        asked = rung.tune if rung.tune is not None else {"tuning": {"level": "none"}}
        planned = subject(tmp_path, json.dumps({**rung.calibrate, **asked}))
        lane = replace(planned.target.lane, value=rung.lane)
        planned = replace(planned, target=replace(planned.target, lane=lane))
        assert (rung.tune is not None) == parameters.tunes(planned), rung.name
        assert rung.transform == (parameters.of_transform(planned) if parameters.transforms(planned) else None), (
            rung.name
        )


def test_a_rung_that_takes_too_long_is_a_result(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rungs, models = benchmark_module("rungs"), benchmark_module("models")
    empty = np.zeros((1, 1), np.float32)
    slow = models.Subject(
        name="slow", title="slow", model_path=tmp_path, calibration=empty, held_out=empty, role="reported on"
    )
    monkeypatch.setattr(rungs, "LIMIT_SECONDS", 0)
    assert rungs.npubake_result(tmp_path, slow, rungs.RUNGS[0]) == {"failed": "not done after 0 s"}
