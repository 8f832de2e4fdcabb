"""tuning: what is gathered once is not gathered again, and gives what gathering it anew would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.tuning.candidate import candidate
from npubake.tuning.learner import Learner
from tests.tuning.networks import Prepared, prepare

SOME_POSITIONS = {"positions": 24}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("learner"))


@pytest.fixture
def samples(prepared: Prepared) -> Iterator[SampleSet]:
    with SampleSet.open(Path(prepared.folder) / "samples.npz") as opened:
        yield opened


def test_further_examples_are_added_to_those_seen(prepared: Prepared, samples: SampleSet) -> None:
    made = candidate(prepared.start())
    groups = frozenset(made.layers)
    step, whole = Learner(samples=samples, threads=1), Learner(samples=samples, threads=1)
    how = step.how(groups, frozenset(), SOME_POSITIONS)
    some = dict(step.moments(made, [1, 3, 4], how))
    counts = {name: moments.count for name, moments in some.items()}
    grown, wanted = step.moments(made, range(6), how), whole.moments(made, range(6), how)
    for name in groups:
        assert grown[name].count == wanted[name].count == 2 * counts[name]
        np.testing.assert_allclose(grown[name].raw(), wanted[name].raw(), rtol=1e-9)
        np.testing.assert_allclose(grown[name].mean(), wanted[name].mean(), rtol=1e-9, atol=1e-12)
    fewer = step.moments(made, [0, 2], how)
    assert {name: 3 * moments.count for name, moments in fewer.items()} == {name: 2 * counts[name] for name in counts}


def test_layers_on_the_same_grids_keep_what_was_learned(prepared: Prepared, samples: SampleSet) -> None:
    learner = Learner(samples=samples, threads=1)
    plain = candidate(prepared.start())
    first = next(iter(plain.layers))
    how = learner.how(frozenset(plain.layers), frozenset(plain.layers), {})
    rounded, _ = learner.learn(plain, range(6), "narrow", how)
    lifted = candidate(prepared.start(), [first])
    moved = [name for name, layer in lifted.layers.items() if not layer.on_grids_of(rounded.layers[name])]
    assert first in moved
    assert len(moved) < len(lifted.layers)
    anew, _ = learner.learn(lifted, range(6), "narrow", how)
    reused, _ = learner.learn(lifted, range(6), "narrow", how, rounded)
    assert anew.constants.keys() == reused.constants.keys()
    for name, value in anew.constants.items():
        np.testing.assert_array_equal(reused.constants[name], value)
