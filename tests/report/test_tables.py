"""The tables, letter by letter."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.report.tables import build_text, gate_table, metric_table, size_text, stage_table, tuning_table

TASKS: list[dict[str, Any]] = [
    {"role": "import", "outcome": "ran", "seconds": 0.314, "targets": ["a", "b"]},
    {"role": "measure quantized", "outcome": "restored", "seconds": 12.0, "targets": ["a"]},
    {"role": "compile", "outcome": "ran", "seconds": 1.0, "targets": ["b"]},
]
GATES: list[dict[str, Any]] = [
    {"boundary": "optimized", "output": "logits", "figure": "cosine", "value": 0.99999912, "threshold": 0.9999,
     "passed": True, "warning": ""},
    {"boundary": "quantized", "output": "logits", "figure": "sqnr_db", "value": 17.25, "threshold": 20.0,
     "passed": False, "warning": ""},
    {"boundary": "product", "output": "top1", "figure": "drop", "value": 0.004, "threshold": 0.01, "passed": True,
     "warning": "the interval is wide"},
    {"boundary": "ptq", "output": "x", "figure": "cosine", "value": None, "threshold": 0.9, "passed": False},
    {"boundary": "calibrated", "passed": False, "what": "no figures", "hint": "look"},
]  # fmt: skip


def test_stages() -> None:
    assert stage_table(TASKS, "a").text() == (
        "Stages\n"
        "stage              outcome      time\n"
        "-----------------  --------  -------\n"
        "import             ran        0.31 s\n"
        "measure quantized  restored  12.00 s"
    )
    assert stage_table(TASKS, "c").text() == ""


def test_trials_of_one_step_are_told_apart() -> None:
    common: dict[str, Any] = {"before": {"y": 26.0}, "after": {"y": 29.9}, "kept": True, "why": "gains +3.90 dB"}
    percentile = {"method": "percentile", "percentile": 0.99999}
    trials = [
        {"step": "bias_correction", "start": "optimised", "settings": {"how": "analytic"}, **common},
        {"step": "equivalent_transformation", "start": "transformed", "settings": {}, **common},
        {"step": "calibration_method", "start": "transformed", "settings": percentile, **common},
        {"step": "mod", "settings": {"layers": 2, "learn": ["zero_point", "rounding"]}, **common},
        {"step": "int16", "settings": {"tensors": ["a", "b"]}, **common},
    ]
    assert [row[:2] for row in tuning_table(trials).rows] == [
        ("bias_correction", "analytic"),
        ("equivalent_transformation", ""),
        ("calibration_method", "percentile 0.99999, transformed graph"),
        ("mod", "2 layers, learn zero_point rounding"),
        ("int16", "2 tensors"),
    ]


def test_gates() -> None:
    assert gate_table(GATES).text() == (
        "Gates\n"
        "boundary    output  figure            threshold  verdict\n"
        "----------  ------  ----------------  ---------  -----------------------------\n"
        "optimized   logits  cosine 0.999999   >= 0.9999  passed\n"
        "quantized   logits  sqnr_db 17.25 dB  >= 20 dB   FAILED\n"
        "product     top1    drop 0.004        <= 0.01    passed (the interval is wide)\n"
        "ptq         x       cosine NaN        >= 0.9     FAILED\n"
        "calibrated          no figures                   FAILED"
    )


def test_metrics() -> None:
    text = metric_table({"coco_map": {"float": 0.91, "quantized": 0.9012}, "fps": "unmeasured"}).text()
    assert text.splitlines()[3:] == ["coco_map  0.9100      0.9012  +0.0088", "fps               unmeasured"]
    assert "0.5000" in metric_table({"top1": {"quantized": 0.5}}).text()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (97026, "94.8 KiB"), (2**29, "512 MiB"), (2**40, "1024 GiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_many_targets_are_a_line_each() -> None:
    target: dict[str, Any] = {
        "gates": [gate for gate in GATES if gate["passed"]],
        "metrics": {"top1": {"float": 0.975, "quantized": 0.97}, "fps": "unmeasured"},
        "artifacts": [{"path": "build/a/a.npub", "bytes": 5}, {"path": "build/a/a.bundle", "bytes": 2048}],
        "platform": "j6e", "toolchain": "reference", "lane": "a8w8", "lane_decided_by": "platform", "deployable": True,
    }  # fmt: skip
    failed = {**target, "gates": GATES[:2], "metrics": {"top1": {"float": 0.975}}, "artifacts": [], "deployable": False}
    tasks = [*TASKS, {"role": "gate quantized", "outcome": "failed", "seconds": 0.0, "targets": ["b"]}]
    summary = {"targets": {"a": target, "b": failed, "c": {**target, "metrics": {}}}, "tasks": tasks}
    assert build_text(summary) == (
        "Targets\n"
        "target  lane  gates                        metric                                 bundle    time\n"
        "------  ----  ---------------------------  ---------------------  ----------------------  ------\n"
        "a       a8w8  2 passed                     top1 0.9750 -> 0.9700                2.00 KiB  12.3 s\n"
        "b       a8w8  1 passed, FAILED: quantized  top1 0.9750 -> ?       failed: gate quantized   1.3 s\n"
        "c       a8w8  2 passed                                                          2.00 KiB   0.0 s\n"
        "\n"
        "Stages: 1 failed, 2 ran, 1 restored\n"
        "NOT RELEASABLE: a trial, or calibrated for purpose smoke: b\n"
        "All tables: npubake build --verbose, or name at most two targets."
    )
    assert build_text(summary, verbose=True).count("Stages\n") == 2  # c has no task here
    assert "Stages\n" in build_text({**summary, "targets": {"a": target, "b": failed}})


def test_whole_text() -> None:
    target = {
        "gates": GATES, "metrics": {"fps": "unmeasured"}, "artifacts": [{"path": "build/a/a.bundle", "bytes": 2048}],
        "platform": "j6e", "toolchain": "reference", "lane": "a8w8", "lane_decided_by": "platform", "deployable": True,
    }  # fmt: skip
    text = build_text({"targets": {"a": target, "b": {**target, "deployable": False}}, "tasks": TASKS})
    assert text.startswith("a: platform j6e, toolchain reference, lane a8w8 (from the platform)\n\nStages\n")
    assert "build/a/a.bundle  2.00 KiB" in text
    assert text.count("NOT RELEASABLE") == 1
    assert not any(line != line.rstrip() for line in text.splitlines())
