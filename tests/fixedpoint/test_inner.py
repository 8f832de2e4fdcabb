"""Room ``fixedpoint``: Conv, HardSwish and a factor per channel in one kernel: inner tensors in 16 bits, exact."""

from __future__ import annotations

import numpy as np
import pytest

from npubake.fixedpoint.ptq import fix_nonlinear
from npubake.quant.model_facts import model_facts
from npubake.quant.qdq import calibrated_model
from tests.fixedpoint.builds import Array, Case, all_runs, calibrated, exposing, float_model, node


@pytest.fixture(scope="module")
def case() -> Case:
    """1x1 Conv -> HardSwish -> per-channel powers of two -> depthwise Conv, channels 30 times apart."""
    rng = np.random.default_rng(5)
    spread = np.array([1, 4, 16, 32], np.float32).reshape(4, 1, 1, 1)
    constants: dict[str, Array] = {
        "w": (rng.normal(size=(4, 3, 1, 1)) * spread).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
        "k": (1 / spread.reshape(1, 4, 1, 1)).astype(np.float32),
        "v": (rng.normal(size=(4, 1, 3, 3)) * spread).astype(np.float32),
    }
    nodes = [
        node("Conv", "x w b", "c"),
        node("HardSwish", "c", "h"),
        node("Mul", "h k", "m"),
        node("Conv", "m v", "d", group=4),
        node("Sigmoid", "d", "y"),
    ]
    model = float_model(nodes, {"x": (1, 3, 8, 8)}, constants, ["y"])
    samples = [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    return calibrated(model, samples, "a8w8")


def feeds(seed: int = 1) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}


def test_all_between_the_kernel_and_its_result_is_inner(case: Case) -> None:
    assert case.parameters.inner == ("c", "h", "d")
    assert {case.parameters.tensors[name].dtype for name in case.parameters.inner} == {"int16"}
    assert {case.parameters.tensors[name].dtype for name in ("x", "m", "y")} == {"uint8"}


def test_every_element_equals_the_evaluator(case: Case) -> None:
    expected = case.expected(feeds())["y"]
    for found in all_runs(case.lower("float32").model, feeds()):
        np.testing.assert_array_equal(found["y"], expected)


def test_the_ptq_model_rounds_inner_tensors_and_nothing_else(case: Case) -> None:
    before = calibrated_model(case.model, case.summary, model_facts(case.model), case.parameters).model
    assert "c/quantized" not in {name for made in before.graph.node for name in made.output}
    fixed = fix_nonlinear(before, case.summary, case.parameters)
    assert not {made.op_type for made in fixed.model.graph.node} & {"HardSwish", "Sigmoid"}
    real = fixed.model
    exact = case.evaluate(feeds())["y"].data * np.float64(case.parameters.tensors["y"].scale)
    for found in all_runs(real, feeds()):
        assert np.abs(found["y"] - exact).max() <= 2 * case.parameters.tensors["y"].scale
    assert {entry.old for entry in fixed.provenance if entry.relation == "gone"} == set()


def test_channels_far_apart_keep_their_bits(case: Case) -> None:
    """Every channel of ``m`` as well as uint8 allows; in one scale before the factor the least would have 8 levels."""
    exact = all_runs(exposing(case.model, ["m"]), feeds())[0]["m"].astype(np.float64)
    facts = case.parameters.tensors["m"]
    error = np.abs(np.clip(exact, facts.low, facts.high) - case.evaluate(feeds())["m"].data * np.float64(facts.scale))
    assert error.max() <= 4 * facts.scale  # the input's and the weights' rounding beside its own half step
