"""graph.transforms.prediction against rounding itself, on random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.graph.editing import GraphEditor
from npubake.graph.transforms.channels import Reach
from npubake.graph.transforms.prediction import Levels, Prediction
from npubake.graph.transforms.ranges import ChannelRange
from npubake.graph.transforms.tracing import trace_channels
from tests.graph.writing import build, normal

OUT, MIDDLE, POSITIONS = 600, 16, 2000
Values = NDArray[np.float64]


def _rounded(values: Values, step: Values | float) -> Values:
    return np.asarray(np.rint(values / step) * step)


def _measured(x: Values, weight: Values, factors: Values, levels: Levels) -> float:
    """Relative mean square error of W x with both rounded, by computing it: one step for x, one for each row of W."""
    scaled, divided = x * factors, weight / factors
    step = (max(scaled.max(), 0.0) - min(scaled.min(), 0.0)) / levels.activation
    steps = np.abs(divided).max(axis=1, keepdims=True) / levels.weight
    of_activations = (_rounded(scaled, step) - scaled) @ divided.T
    of_weights = scaled @ (_rounded(divided, steps) - divided).T
    return float((of_activations**2 + of_weights**2).mean() / ((x @ weight.T) ** 2).mean())


@pytest.mark.parametrize("levels", [Levels(), Levels(activation=65535), Levels(weight=31)])
@pytest.mark.parametrize("untouched", [True, False])
def test_the_error_of_a_linear_layer(levels: Levels, untouched: bool) -> None:
    generator = np.random.default_rng(5)
    sizes = np.exp2(generator.integers(-4, 1, MIDDLE))
    x = generator.uniform(0.0, 1.0, (POSITIONS, MIDDLE)) * generator.choice([-1, 1], (POSITIONS, MIDDLE)) * sizes
    weight = generator.standard_normal((OUT, MIDDLE)).astype(np.float32)
    model = build(
        f"float[1,8] x => float[1,{OUT}] y",
        "t = Gemm(x, w1) y = Gemm<transB=1>(t, w2)",
        w1=normal(8, MIDDLE), w2=weight,
    )  # fmt: skip
    channels = trace_channels(GraphEditor(model), Reach(writers={"weighted"}))
    entry = ChannelRange(
        axis=1, low=x.min(axis=0), high=x.max(axis=0), mean=x.mean(axis=0), square=(x * x).mean(axis=0)
    )
    by_channel = np.ones(MIDDLE) if untouched else 1.0 / sizes
    factors = np.ones(channels.count)
    factors[channels.ids["t"]] = by_channel
    predicted = Prediction(channels, {"t": entry}, levels).errors(factors)[channels.ids["t"]]
    assert (predicted == predicted[0]).all()
    measured = _measured(x, weight.astype(np.float64), by_channel, levels)
    assert predicted[0] == pytest.approx(measured, rel=0.12)


def test_of_what_was_not_observed_nothing_is_predicted() -> None:
    model = build("float[1,8] x => float[1,4] y", "t = Gemm(x, w1) y = Gemm(t, w2)", w1=normal(8, 6), w2=normal(6, 4))
    channels = trace_channels(GraphEditor(model), Reach(writers={"weighted"}))
    assert not Prediction(channels, {}, Levels()).errors(np.ones(channels.count)).any()
