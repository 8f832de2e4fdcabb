"""tuning: MOD over a network: which layers are taught, what they learn, and that it stays on the grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from npubake.calibration.inference import open_session
from npubake.calibration.samples import SampleSet
from npubake.quant.weights import weight_steps
from npubake.tuning.candidate import Candidate, candidate
from npubake.tuning.settings import TuneSettings
from npubake.tuning.simulation import Simulator
from npubake.tuning.steps import Tuned, tune
from npubake.tuning.teaching import POSITIONS, Teaching, taught
from tests.tuning.networks import Prepared, pictures, prepare

LEARN_SCALES = {"epochs": 4, "learn": ["activation_scale", "zero_point", "weight_scale", "rounding"]}
ALONE: dict[str, Any] = {"level": "none", "judge": False}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("teaching"), count=16)


def weighted(prepared: Prepared) -> list[str]:
    return [group.name for group in prepared.summary.groups if group.kind in ("conv", "linear")]


def tuned(prepared: Prepared, mod: Mapping[str, Any] | None, threads: int = 1, **params: Any) -> Tuned:
    start = prepared.start(layer_overrides=params.pop("layer_overrides", ()), **params.pop("start", {}))
    groups = [group.name for group in prepared.summary.groups]
    asked = {"tuning": ALONE, **({} if mod is None else {"mod": mod}), **params}
    taught_layers = params.pop("taught", None)
    settings = TuneSettings.from_params(asked, groups, start.request.overrides, start.matched, taught_layers)
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        return tune([start], samples, settings, threads)


def error(prepared: Prepared, one: Candidate, seed: int = 78) -> float:
    """Squared error of the output on pictures that nothing was learned from."""
    real, simulator = open_session(prepared.model, "float", 1), Simulator(one.simulated, ["y"], 1, _constants(one))
    return sum(
        float(np.square(simulator.run({"x": x}, one.forms())["y"] - real.run(["y"], {"x": x})[0]).sum())
        for x in pictures(40, seed=seed)
    )


def _constants(one: Candidate) -> Mapping[str, Any]:
    return one.simulated_constants()


def test_taught_layers_bring_the_network_nearer_to_float(prepared: Prepared) -> None:
    """With weights of 4 bits, where weights are what is lost."""
    coarse: dict[str, Any] = {"weights": {"bits": 4}}
    made = tuned(prepared, {}, start=coarse).candidate
    assert error(prepared, made) < 0.5 * error(prepared, candidate(prepared.start(**coarse)))
    assert {layer.operand.initializer for layer in made.layers.values()} <= made.constants.keys()


@pytest.mark.parametrize("mod", [{"epochs": 4}, LEARN_SCALES], ids=["rounding", "scales"])
def test_what_is_learned_lies_on_the_grid(prepared: Prepared, mod: Mapping[str, Any]) -> None:
    made = tuned(prepared, mod).candidate
    for name, layer in made.layers.items():
        entry, weights = made.parameters.weights[name], made.constants[layer.operand.initializer]
        steps = weight_steps(entry, weights.shape)
        codes = np.rint(weights / steps)
        assert np.abs(codes).max() <= 127
        np.testing.assert_array_equal((codes * steps).astype(np.float32), weights)


def test_learned_scales_come_out_of_assign(prepared: Prepared) -> None:
    """The parameters are those that ``calibrate`` makes of the learned scales as loaded ones; weight scales aside."""
    made = tuned(prepared, LEARN_SCALES).candidate
    plain = candidate(prepared.start())
    moved = [name for name, entry in made.parameters.tensors.items() if entry != plain.parameters.tensors[name]]
    assert moved
    again = made.start.assigned(made.lifted).parameters
    assert made.parameters.tensors == again.tensors
    scales = {name: entry.scales for name, entry in made.parameters.weights.items()}
    assert scales != {name: entry.scales for name, entry in again.weights.items()}


def test_scales_that_others_read_too_stay(prepared: Prepared) -> None:
    """The sum's tensor is read by one layer alone; what the first Relu makes is read by a layer and by the sum."""
    made, plain = tuned(prepared, LEARN_SCALES).candidate, candidate(prepared.start())
    relu = next(group for group in prepared.summary.groups if group.kind == "conv").outputs[0]
    readers = [group for group in prepared.summary.groups if relu in group.inputs]
    assert len(readers) == 2
    assert made.parameters.tensors[relu] == plain.parameters.tensors[relu]


def test_only_the_layers_named_are_taught(prepared: Prepared) -> None:
    first, second, *_ = weighted(prepared)
    made = tuned(prepared, {"epochs": 2}, taught=[first]).candidate
    assert made.constants.keys() == {made.layers[first].operand.initializer, made.layers[first].operand.bias_name}
    overrides = [{"match": {"names": [second]}, "set": {"mod": True}}]
    made = tuned(prepared, None, layer_overrides=overrides).candidate
    assert made.constants.keys() == {made.layers[second].operand.initializer, made.layers[second].operand.bias_name}
    overrides = [{"match": {"names": [first]}, "set": {"mod": False}}]
    made = tuned(prepared, {"epochs": 2}, layer_overrides=overrides).candidate
    assert made.layers[first].operand.initializer not in made.constants
    assert made.layers[second].operand.initializer in made.constants


def test_it_is_judged_and_refitted(prepared: Prepared) -> None:
    made = tuned(prepared, {"epochs": 20}, tuning={"level": "none"})
    (trial,) = made.record["trials"]
    assert trial["step"] == "mod"
    assert trial["settings"] == {"epochs": 20, "layers": len(weighted(prepared))}
    gain = trial["after"]["y"] - trial["before"]["y"]
    assert trial["kept"] == (gain >= 0.1)
    assert trial["kept"]
    assert made.record["learned_from_all"] == 16


@pytest.mark.parametrize("mod", [{"epochs": 3}, LEARN_SCALES], ids=["rounding", "scales"])
def test_the_same_for_any_thread_count(prepared: Prepared, mod: Mapping[str, Any]) -> None:
    one, many = (tuned(prepared, mod, threads) for threads in (1, 3))
    assert one.record == many.record
    assert one.candidate.parameters == many.candidate.parameters
    for name, value in one.candidate.constants.items():
        np.testing.assert_array_equal(value, many.candidate.constants[name])


def test_settings_are_those_of_the_recipe() -> None:
    how = Teaching.of(frozenset("a"), {"epochs": 7, "learning_rate": 0.5, "schedule": "constant", "loss": "mse"}, 1)
    assert (how.settings.epochs, how.settings.learning_rate, how.settings.schedule) == (7, 0.5, "constant")
    assert how.learn == {"rounding"}
    assert Teaching.of(frozenset(), {"learn": ["weight_scale"]}, 1).learn == {"weight_scale"}


def test_progress_counts_layers_of_both_passes(prepared: Prepared) -> None:
    begin, heard = candidate(prepared.start()), list[int]()
    how = Teaching.of(frozenset(begin.layers), LEARN_SCALES | {"epochs": 1}, 1)
    feeds = [{"x": picture} for picture in pictures(4)]
    taught(begin, feeds, how, lambda same: same, heard.append)
    assert heard == list(range(1, 2 * len(begin.layers) + 1))


def test_positions_are_few_enough_for_the_largest_layers() -> None:
    assert POSITIONS * 32 * 4608 * 4 < 1 << 30  # bytes of the columns of 32 examples, 3 x 3 x 512 input channels
