"""tuning: the order of steps, what is kept, and that what leaves is what was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from npubake.calibration.inference import open_session
from npubake.calibration.samples import SampleSet
from npubake.quant.model_facts import model_facts
from npubake.quant.qdq import calibrated_model
from npubake.quant.weights import weight_steps
from npubake.tuning.candidate import Candidate, Start, candidate
from npubake.tuning.learner import Learner, Way
from npubake.tuning.settings import TuneSettings
from npubake.tuning.simulation import Simulator
from npubake.tuning.steps import Tuned, tune
from tests.tuning.networks import Prepared, pictures, prepare, write_samples


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("steps"), count=16)


def tuned(prepared: Prepared, params: Mapping[str, Any], start: Start | None = None, threads: int = 1) -> Tuned:
    begin = start or prepared.start()
    groups = [group.name for group in prepared.summary.groups]
    settings = TuneSettings.from_params(params, groups, begin.request.overrides, begin.matched)
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        return tune([begin], samples, settings, threads)


def steps_of(made: Tuned) -> list[str]:
    return [trial["step"] for trial in made.record["trials"]]


EVERYTHING: dict[str, Any] = {
    "tuning": {"level": "best", "judge": True},
    "search_weight_scale": {"candidates": 4},
    "hessian": {"damping": 0.02},
    "bias_correction": "analytic",
}


@pytest.mark.parametrize("judge", [True, False])
def test_codes_and_values_are_the_same_thing(prepared: Prepared, judge: bool) -> None:
    """rint(W / step) of the float model gives codes whose values are W: nothing behind tune rounds differently."""
    made = tuned(prepared, {**EVERYTHING, "tuning": {"level": "best", "judge": judge}}).candidate
    real = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.float_model().graph.initializer}
    assert judge or {layer.operand.initializer for layer in made.layers.values()} <= set(made.constants)
    for name in made.layers:
        entry = made.parameters.weights[name]
        weights = real[entry.initializer]
        steps = weight_steps(entry, weights.shape)
        codes = np.rint(weights / steps)
        assert np.abs(codes).max() <= 127
        if entry.initializer in made.constants:
            np.testing.assert_array_equal((codes * steps).astype(np.float32), weights)


def test_what_leaves_is_what_was_judged(prepared: Prepared) -> None:
    made = tuned(prepared, EVERYTHING).candidate
    real = made.float_model()
    summary = made.start.subject.summary
    session = open_session(calibrated_model(real, summary, model_facts(real), made.parameters).model, "calibrated", 1)
    simulator = Simulator(made.simulated, ["y"], 1, made.simulated_constants())
    for picture in pictures(4, seed=8):
        answer = simulator.run({"x": picture}, made.forms())["y"]
        np.testing.assert_allclose(session.run(None, {"x": picture})[0], answer, rtol=0, atol=2e-6)


def test_only_gains_are_kept_and_the_last_score_is_the_best(prepared: Prepared) -> None:
    record = tuned(prepared, EVERYTHING).record
    assert record["judged_on"]
    for trial in record["trials"]:
        if trial["after"] is not None:
            gain = np.mean(list(trial["after"].values())) - np.mean(list(trial["before"].values()))
            assert trial["kept"] <= (gain >= 0.1)
            more = trial["step"] == "calibration_method" or trial["settings"].get("activations") == "execution"
            assert trial["kept"] == (gain >= 0.1) or more  # these ask for more
    kept = [trial for trial in record["trials"] if trial["kept"]]
    assert record["score"] == kept[-1]["after"]
    assert record["kept"] == [trial["step"] for trial in kept]


def test_tuning_brings_the_network_nearer_to_float(prepared: Prepared) -> None:
    """On pictures that no step has seen."""
    made = tuned(prepared, {"tuning": {"level": "best"}}).candidate
    real = open_session(prepared.model, "float", 1)
    errors = []
    for one in (candidate(prepared.start()), made):
        simulator = Simulator(one.simulated, ["y"], 1, one.simulated_constants())
        differences = [
            simulator.run({"x": picture}, one.forms())["y"] - real.run(["y"], {"x": picture})[0]
            for picture in pictures(40, seed=77)
        ]
        errors.append(float(np.square(differences).sum()))
    assert errors[1] < errors[0] / 2


def test_bits_come_before_rounding(prepared: Prepared) -> None:
    steps = steps_of(tuned(prepared, EVERYTHING))
    assert steps.index("int16") < steps.index("search_weight_scale") < steps.index("hessian")


def test_max_int16_is_kept(prepared: Prepared) -> None:
    for most in (0, 1, 3):
        made = tuned(prepared, {"tuning": {"level": "best", "max_int16": most}}).candidate
        wide = [
            name
            for group in prepared.summary.groups
            for name in group.outputs
            if group.kind not in ("movement", "concat")  # the same values again
            if name in made.parameters.tensors and made.parameters.tensors[name].dtype == "int16"
            if name not in made.parameters.inner
        ]
        assert len(wide) <= most


def test_a_person_s_bits_stay(prepared: Prepared) -> None:
    names = [group.name for group in prepared.summary.groups]
    overrides = [{"match": {"names": names}, "set": {"output": "int8"}}]
    made = tuned(prepared, {"tuning": {"level": "best"}}, prepared.start(layer_overrides=overrides))
    assert made.record["lifted"] == []


def test_level_none_with_nothing_asked_is_rounding_to_nearest(prepared: Prepared) -> None:
    made = tuned(prepared, {"tuning": {"level": "none"}})
    assert made.record["trials"] == []
    assert dict(made.candidate.constants) == {}


def test_unjudged_steps_are_taken_only_where_asked(prepared: Prepared) -> None:
    plain = tuned(prepared, {"tuning": {"judge": False}})
    assert plain.record["trials"] == []
    assert plain.record["unjudged"] == "judge: false"
    asked = tuned(prepared, {"tuning": {"judge": False}, "bias_correction": "empirical", "hessian": {}})
    assert [(trial["step"], trial["kept"]) for trial in asked.record["trials"]] == [
        ("hessian", True),
        ("bias_correction", True),
    ]


def test_too_few_examples_are_said(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, count=3)
    record = tuned(prepared, {}).record
    assert record["trials"] == []
    assert "fewer than 4" in record["unjudged"]


def test_forbidden_steps_are_not_tried(prepared: Prepared) -> None:
    params = {"tuning": {"level": "best", "max_int16": 0}, "hessian": False, "bias_correction": "none"}
    assert {"hessian", "bias_correction"}.isdisjoint(steps_of(tuned(prepared, params)))


def test_a_layer_may_stand_aside(prepared: Prepared) -> None:
    conv = next(group.name for group in prepared.summary.groups if group.kind == "conv")
    overrides = [{"match": {"names": [conv]}, "set": {"hessian": False, "bias_correction": "none"}}]
    start = prepared.start(layer_overrides=overrides)
    params = {"tuning": {"level": "none", "judge": False}, "hessian": {}, "bias_correction": "analytic"}
    made = tuned(prepared, params, start).candidate
    aside = made.layers[conv].operand
    assert not {aside.initializer, aside.bias_name} & set(made.constants)
    assert (
        len({layer.operand.initializer for layer in made.layers.values()} & set(made.constants)) == len(made.layers) - 1
    )


def test_each_layer_has_its_bias_corrected_in_its_own_way(prepared: Prepared) -> None:
    """What statistics say of one layer's bias depends on no other layer; examples see the layers before it."""
    alone = {"tuning": {"level": "none", "judge": False}}
    first, _, third, *_ = (group.name for group in prepared.summary.groups if group.kind == "conv")

    def biases(params: Mapping[str, Any], **words: str) -> dict[str, bytes]:
        overrides = [{"match": {"names": [name]}, "set": {"bias_correction": word}} for name, word in words.items()]
        made = tuned(prepared, {**alone, **params}, prepared.start(layer_overrides=overrides)).candidate
        return {name: value.tobytes() for name, value in made.constants.items()}

    everywhere = biases({"bias_correction": "analytic"})
    mixed = biases({}, **{first: "analytic", third: "empirical"})
    one = next(layer.operand.bias_name for name, layer in candidate(prepared.start()).layers.items() if name == first)
    assert (len(mixed), mixed[one]) == (2, everywhere[one])
    (other,) = mixed.keys() - {one}
    assert mixed[other] != everywhere[other]
    one_aside = biases({"bias_correction": "analytic"}, **{third: "empirical"})
    assert {name for name, value in one_aside.items() if value != everywhere[name]} == {other}


def test_biases_from_examples_leave_the_weights_as_they_were_rounded(prepared: Prepared) -> None:
    asked = {"tuning": {"level": "none", "judge": False}, "hessian": {}}
    rounded = tuned(prepared, asked).candidate
    both = tuned(prepared, {**asked, "bias_correction": "empirical"}).candidate
    for layer in rounded.layers.values():
        name = layer.operand.initializer
        np.testing.assert_array_equal(both.constants[name], rounded.constants[name])


def test_level_best_corrects_the_biases_of_the_rounding_that_was_kept(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that slices in turn judge is kept, nothing else: weights are then those of rounding from all examples."""
    monkeypatch.setattr("npubake.tuning.steps.DOUBTFUL_DB", 1000.0)
    monkeypatch.setattr("npubake.tuning.steps.EXECUTION_GAIN_DB", 1000.0)
    monkeypatch.setattr("npubake.tuning.trials.GAIN_DB", -1000.0)
    monkeypatch.setattr("npubake.tuning.trials.LOSS_DB", 1000.0)
    learned: list[tuple[str, list[int], Candidate]] = []
    learn = Learner.learn

    def noting(learner: Learner, before: Candidate, indices: Sequence[int], way: Way, *rest: Any) -> Any:
        made = learn(learner, before, indices, way, *rest)
        learned.append((way, sorted(indices), made[0]))
        return made

    monkeypatch.setattr(Learner, "learn", noting)
    made = tuned(prepared, {"tuning": {"level": "best", "max_int16": 0}}, prepared.start(lane="a16w8")).candidate
    assert [entry[:2] for entry in learned[-2:]] == [("float", list(range(16))), ("biases", list(range(16)))]
    assert made.constants is learned[-1][2].constants
    rounded = learned[-2][2].constants
    biases = {layer.operand.bias_name for layer in made.layers.values()}
    differing = {name for name, value in made.constants.items() if not np.array_equal(value, rounded[name])}
    assert differing
    assert differing <= biases


def test_biases_that_followed_every_layer_are_not_tried_again(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npubake.tuning.steps.EXECUTION_GAIN_DB", -1000.0)
    monkeypatch.setattr("npubake.tuning.trials.LOSS_DB", 1000.0)
    best = {"tuning": {"level": "best"}, "hessian": {}}
    trials = tuned(prepared, best).record["trials"]
    assert trials[-1]["settings"]["activations"] == "execution"
    assert (trials[-1]["step"], trials[-1]["kept"]) == ("hessian", True)
    asked = tuned(prepared, {**best, "bias_correction": "empirical"}).record["trials"]
    assert [trial["step"] for trial in asked[-2:]] == ["hessian", "bias_correction"]


@pytest.mark.parametrize("threads", [2, 4])
def test_the_same_for_any_thread_count(prepared: Prepared, threads: int) -> None:
    one, many = (tuned(prepared, EVERYTHING, threads=count) for count in (1, threads))
    assert one.record == many.record
    assert one.candidate.parameters == many.candidate.parameters
    assert set(one.candidate.constants) == set(many.candidate.constants)
    for name, value in one.candidate.constants.items():
        np.testing.assert_array_equal(value, many.candidate.constants[name])


def test_the_better_of_two_float_graphs_is_taken(prepared: Prepared, tmp_path: Path) -> None:
    other = prepare(tmp_path, count=16, seed=3)
    write_samples(prepared.folder / "samples.npz", pictures(16))
    begin, wrong = prepared.start(), replace(other.start(), name="transformed")
    settings = TuneSettings.from_params({}, [group.name for group in prepared.summary.groups], (), ())
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        made = tune([begin, wrong], samples, settings, 1)
    assert made.record["start"] == "optimised"
    trial = next(trial for trial in made.record["trials"] if trial["step"] == "equivalent_transformation")
    assert not trial["kept"]


def test_level_default_rounds_narrow_layers_alone(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit between the layers' columns, what is wider keeps its nearest codes."""
    columns = sorted({layer.form.columns for layer in candidate(prepared.start()).layers.values()})
    assert len(columns) > 1
    monkeypatch.setattr("npubake.tuning.steps.NARROW", columns[-2])
    made = tuned(prepared, {}, prepared.start(lane="a16w8"))
    (trial,) = (trial for trial in made.record["trials"] if trial["step"] == "hessian")
    few = {name for name, layer in made.candidate.layers.items() if layer.form.columns <= columns[-2]}
    assert trial["settings"] == {"layers": len(few), "activations": "float"}
    assert trial["kept"]
    for name, layer in made.candidate.layers.items():
        weights = made.candidate.constants.get(layer.operand.initializer, layer.nearest)
        assert np.array_equal(weights, layer.nearest) == (name not in few)
    assert made.record["learned_from_all"] == 0


ASKED: dict[str, Any] = {"tuning": {"level": "none", "judge": False}, "search_weight_scale": {"candidates": 4}}


def test_weights_that_a_searched_scale_saturates_are_counted(prepared: Prepared) -> None:
    """Against the codes that would leave their type, by the scales that the search left."""
    made = tuned(prepared, ASKED, prepared.start(weights={"bits": 4}))
    (trial,) = (trial for trial in made.record["trials"] if trial["step"] == "search_weight_scale")
    beyond = 0
    for name, layer in made.candidate.layers.items():
        entry = made.candidate.parameters.weights[name]
        codes = np.rint(layer.operand.weights / weight_steps(entry, layer.operand.weights.shape))
        beyond += int((np.abs(codes) > {"int4": 7, "int8": 127}[entry.dtype]).sum())
    assert trial["settings"] == {"candidates": 4, "saturated": beyond}
    assert beyond > 0


def test_layers_that_the_search_of_scales_leaves_are_named(prepared: Prepared) -> None:
    made = tuned(prepared, ASKED, prepared.start(weights={"symmetric": False}))
    trials = [trial for trial in made.record["trials"] if trial["step"] == "search_weight_scale"]
    left = [trial["why"].partition(": its weights")[0] for trial in trials if not trial["kept"]]
    assert left == list(made.candidate.layers)
