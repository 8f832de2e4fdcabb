"""tuning: the simulation against the calibrated model, and against what leaving a tensor alone must mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npubake.calibration.inference import open_session
from npubake.fixedpoint.lower import lower_model
from npubake.quant.qdq import calibrated_model
from npubake.tuning.candidate import Candidate, candidate
from npubake.tuning.simulation import Form, Simulator, untouched
from tests.quant.quantize_linear import fake_quantize
from tests.tuning.networks import pictures, prepare


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    return candidate(prepare(tmp_path_factory.mktemp("simulation")).start())


def calibrated(made: Candidate) -> onnx.ModelProto:
    subject = made.start.subject
    return calibrated_model(made.start.model, subject.summary, subject.facts, made.parameters).model


@pytest.mark.parametrize("lane", ["a8w8", "a16w8", "fp16_a8w8"])
def test_equal_to_the_calibrated_model(tmp_path: Path, lane: str) -> None:
    made = candidate(prepare(tmp_path).start(lane=lane))
    wanted = open_session(calibrated(made), "calibrated", 1)
    simulator = Simulator(made.simulated, ["y"], 1, made.simulated_constants())
    for picture in pictures(6, seed=5):
        answer = simulator.run({"x": picture}, made.forms())["y"]
        np.testing.assert_allclose(answer, wanted.run(None, {"x": picture})[0], rtol=0, atol=2e-6)


def test_a_watched_tensor_is_what_its_readers_see(made: Candidate) -> None:
    name = next(name for name in made.simulated.forms if name not in ("x", "y"))
    simulator = Simulator(made.simulated, [name], 1)
    seen = simulator.run({"x": pictures(1)[0]}, made.forms())[name]
    np.testing.assert_array_equal(seen, fake_quantize(seen, made.parameters.tensors[name]))
    free = simulator.run({"x": pictures(1)[0]}, {**made.forms(), name: untouched(float(np.abs(seen).max()) * 2)})[name]
    assert len(np.unique(free)) > 256
    assert len(np.unique(seen)) <= 256


def test_untouched_everywhere_is_the_float_model_with_rounded_weights(made: Candidate) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(made.start.model)
    for tensor in model.graph.initializer:
        if tensor.name in made.simulated.constants:
            tensor.CopyFrom(numpy_helper.from_array(made.simulated.constants[tensor.name], tensor.name))
    wanted = open_session(model, "float", 1)
    simulator = Simulator(made.simulated, ["y"], 1)
    forms = {name: untouched(64.0) for name in simulator.quantised}
    picture = pictures(1)[0]
    answer = simulator.run({"x": picture}, forms)["y"]
    np.testing.assert_allclose(answer, wanted.run(None, {"x": picture})[0], atol=1e-5)


def test_constants_given_take_the_place_of_the_rounded_ones(made: Candidate) -> None:
    bias = list(made.layers.values())[-1].operand.bias_name
    changed = np.add(made.simulated.constants[bias], np.arange(6), dtype=np.float32)
    forms, feeds = made.forms(), {"x": pictures(1)[0]}
    before = Simulator(made.simulated, ["y"], 1).run(feeds, forms)["y"]
    after = Simulator(made.simulated, ["y"], 1, {bias: changed}).run(feeds, forms)["y"]
    assert np.abs(after - before).max() > 0.01


@pytest.mark.parametrize("absmax", [0.0, 1e-3, 1.0, 3.7e4])
def test_untouched_leaves_values_to_24_bits(absmax: float) -> None:
    form = untouched(absmax)
    values = np.linspace(-absmax, absmax, 1001, dtype=np.float32)
    left = np.rint(values / np.float32(form.scale)) * np.float32(form.scale)
    assert np.abs(left - values).max() <= absmax * 2.0**-24
    assert form == Form(scale=form.scale, low=-np.inf, high=np.inf)


def test_nothing_divided_by_nothing_is_nothing(tmp_path: Path) -> None:
    """An empty picture behind a normalisation whose divisor rounds to 0: the integer model gives 0 there
    (docs/arithmetic.md), so that the bias is left of the layer behind it.
    """
    source = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
t (float[1,3,12,12] x) => (float[1,4,12,12] y) {
  s = Mul(x, x)
  m = ReduceMean<axes = [-1]>(s)
  e = Add(m, k)
  r = Sqrt(e)
  n = Div(x, r)
  y = Conv(n, w, b)
}
""")
    bias = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    weights = np.random.default_rng(6).normal(size=(4, 3, 1, 1)).astype(np.float32)
    for name, value in (("k", np.array(1e-6, np.float32)), ("w", weights), ("b", bias)):
        source.graph.initializer.append(numpy_helper.from_array(value, name))
    made = candidate(prepare(tmp_path, source=source).start())
    empty = np.zeros((1, 3, 12, 12), np.float32)
    answer = Simulator(made.simulated, ["y"], 1).run({"x": empty}, made.forms())["y"]
    np.testing.assert_allclose(answer, np.broadcast_to(bias[:, None, None], answer.shape), rtol=0, atol=1e-3)
    lowered = lower_model(made.start.model, made.start.subject.summary, made.parameters, "float32").model
    integer = open_session(lowered, "integers", 1).run(None, {"x": empty})[0]
    np.testing.assert_allclose(answer, integer, rtol=0, atol=1e-4)
