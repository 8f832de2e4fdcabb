"""tuning: the method of calibration is chosen where a recipe leaves it open, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npubake.calibration.samples import SampleSet
from npubake.quant.thresholds import Threshold
from npubake.tuning import methods
from npubake.tuning.candidate import Start
from npubake.tuning.methods import STEP, TRIED, left_open, with_method
from npubake.tuning.settings import TuneSettings
from npubake.tuning.steps import Tuned, tune
from tests.tuning.networks import Prepared, prepare

MINMAX = {"method": "minmax"}
NARROW = {"method": "percentile", "percentile": 0.7}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("methods"), count=16)


def tuned(prepared: Prepared, start: Start, **params: Any) -> Tuned:
    groups = [group.name for group in prepared.summary.groups]
    asked = {"tuning": {"max_int16": 0}, **params}
    settings = TuneSettings.from_params(asked, groups, start.request.overrides, start.matched)
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        return tune([start], samples, settings, 1)


def trials(made: Tuned) -> list[dict[str, Any]]:
    return [trial for trial in made.record["trials"] if trial["step"] == STEP]


def badly_started(prepared: Prepared) -> Start:
    """``auto`` with ranges that clip a third of all values."""
    narrow = prepared.start(calibration=NARROW).assigned(()).parameters
    return replace(prepared.start(), given=narrow)


def test_another_method_is_taken_where_it_gains(prepared: Prepared) -> None:
    made = tuned(prepared, badly_started(prepared))
    (kept,) = (trial for trial in trials(made) if trial["kept"])
    assert made.record["kept"].count(STEP) == 1
    explicit = prepared.start(calibration=kept["settings"])
    assert made.candidate.parameters == explicit.assigned(()).parameters


def test_every_method_is_written_down(prepared: Prepared) -> None:
    found = trials(tuned(prepared, badly_started(prepared)))
    assert sorted(trial["settings"]["method"] for trial in found) == ["minmax", "percentile"]
    for trial in found:
        assert trial["before"].keys() == trial["after"].keys() == {"y"}
    (lost,) = (trial for trial in found if not trial["kept"])
    assert "gives more" in lost["why"]


def test_where_the_best_does_not_hold_the_next_is_tried(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(trial for trial in trials(tuned(prepared, badly_started(prepared))) if trial["kept"])
    answers = [(0.0, 0.0), (3.0, 3.0)]
    monkeypatch.setattr(methods, "_gains", lambda *_: answers.pop(0))
    found = trials(tuned(prepared, badly_started(prepared)))
    assert [trial["kept"] for trial in found] == [False, True]
    assert found[0]["settings"] == first["settings"] != found[1]["settings"]
    assert "with other examples" in found[0]["why"]


def test_least_squared_error_stays_without_a_clear_gain(prepared: Prepared) -> None:
    made = tuned(prepared, prepared.start())
    assert not any(trial["kept"] for trial in trials(made))
    assert made.candidate.parameters == prepared.start(calibration={"method": "mse"}).assigned(()).parameters


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy", "mean_minmax"])
def test_a_named_method_is_never_overruled(prepared: Prepared, method: str) -> None:
    start = prepared.start(calibration={"method": method})
    assert not left_open(start.request)
    assert trials(tuned(prepared, start)) == []


def test_nothing_is_tried_at_level_none_or_unjudged(prepared: Prepared) -> None:
    assert trials(tuned(prepared, badly_started(prepared), tuning={"level": "none"})) == []
    assert trials(tuned(prepared, badly_started(prepared), tuning={"judge": False})) == []


def test_layers_with_a_method_of_their_own_keep_it(prepared: Prepared) -> None:
    conv = next(group for group in prepared.summary.groups if group.kind == "conv")
    overrides = [{"match": {"names": [conv.name]}, "set": {"method": "minmax"}}]
    start = prepared.start(layer_overrides=overrides)
    for threshold in TRIED:
        made = with_method(start, threshold).assigned(()).parameters.tensors
        asked = {"method": threshold.method, "percentile": threshold.percentile}
        wanted = prepared.start(calibration=asked, layer_overrides=overrides).assigned(()).parameters.tensors
        assert made == wanted
        everywhere = prepared.start(calibration=MINMAX).assigned(()).parameters.tensors
        assert made[conv.outputs[0]] == everywhere[conv.outputs[0]]


def test_an_override_may_leave_the_method_open(prepared: Prepared) -> None:
    conv = next(group for group in prepared.summary.groups if group.kind == "conv")
    start = prepared.start(
        calibration=MINMAX, layer_overrides=[{"match": {"names": [conv.name]}, "set": {"method": "auto"}}]
    )
    assert left_open(start.request)
    made = with_method(start, Threshold(method="percentile", percentile=0.7))
    explicit = [{"match": {"names": [conv.name]}, "set": NARROW}]
    wanted = prepared.start(calibration=MINMAX, layer_overrides=explicit)
    assert made.assigned(()).parameters == wanted.assigned(()).parameters
    assert made.request.threshold == start.request.threshold


def test_integers_of_16_bits_have_no_method(tmp_path: Path) -> None:
    """Their ranges hold all that was seen, whatever the method."""
    prepared = prepare(tmp_path, count=8)
    assert trials(tuned(prepared, prepared.start(lane="a16w8"))) == []
