"""tuning: what layers read while constants are settled one after the other, against the calibrated model itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npubake.calibration.inference import open_session
from npubake.quant.qdq import calibrated_model
from npubake.tuning.candidate import candidate
from npubake.tuning.execution import exposing
from npubake.tuning.hessian import HessianSettings
from npubake.tuning.rounding import Rounding, Walk, round_in_execution
from tests.tuning.networks import pictures, prepare, two_readers


def test_a_layer_reads_the_integers_of_a_graph_output(tmp_path: Path) -> None:
    """``r`` leaves the model and is read behind: in the simulated model the two have unlike names."""
    prepared = prepare(tmp_path, source=two_readers())
    made = candidate(prepared.start())
    feeds = [{"x": picture} for picture in pictures(3, seed=7)]
    subject = made.start.subject
    quantised = calibrated_model(prepared.model, subject.summary, subject.facts, made.parameters).model
    sessions = [
        open_session(exposing(model, [name]), "expected", 1)
        for model, name in ((quantised, "r/dequantized"), (prepared.model, "r"))
    ]
    walk, seen = Walk(made, feeds, 1), 0
    for layer in walk.layers(made.layers.values()):
        if layer.form.tensor == "r":
            for index, example in enumerate(feeds):
                for found, session in zip(walk.read(layer, index), sessions, strict=True):
                    np.testing.assert_allclose(found, session.run(None, example)[0], rtol=0, atol=2e-6)
            seen += 1
    assert seen == 2


def test_layers_behind_a_graph_output_are_rounded(tmp_path: Path) -> None:
    made = candidate(prepare(tmp_path, source=two_readers()).start())
    groups = frozenset(made.layers)
    how = Rounding(rounded=groups, corrected=groups, hessian=HessianSettings(), positions=64, threads=1)
    constants = round_in_execution(made, [{"x": picture} for picture in pictures(4)], how)
    wanted = {layer.operand.initializer for layer in made.layers.values()}
    assert wanted < constants.keys()
    assert all(np.isfinite(value).all() for value in constants.values())
