"""Bias correction: after it, the layer's mean output by ONNX Runtime is the float layer's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.tuning.bias_correction import analytic, column_means, corrected, empirical
from npubake.tuning.matrix_form import MatrixForm, matrix_forms
from npubake.tuning.moments import Moments, accumulate
from tests.tuning.layers import LAYERS, Layer, layer


def by_channel(outputs: NDArray[np.float32], form: MatrixForm) -> NDArray[np.float64]:
    """Mean of stacked outputs by channel."""
    axis = outputs.ndim - 1 if form.operator == "linear" else 2
    others = tuple(other for other in range(outputs.ndim) if other != axis)
    return np.asarray(outputs.astype(np.float64).mean(axis=others))


def case(name: str) -> tuple[Layer, MatrixForm, NDArray[np.float32], NDArray[np.float32]]:
    """A layer, its form, examples with a mean, and coarsely rounded weights."""
    made = layer(name)
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    rounded = (np.round(made.weights * 2) / 2).astype(np.float32)
    return made, form, (made.inputs(6) + 0.7).astype(np.float32), rounded


@pytest.mark.parametrize("name", LAYERS)
def test_means_of_columns_give_the_mean_of_the_outputs(name: str) -> None:
    made, form, examples, rounded = case(name)
    moments = Moments.empty(form)
    for index, x in enumerate(examples):
        accumulate(moments, form, x, index, positions=4 * form.positions)
    shift = analytic(form.to_matrix(made.weights), form.to_matrix(rounded), moments.mean())
    outputs = [np.stack([made.output(x, weights) for x in examples]) for weights in (None, rounded)]
    wanted = empirical(by_channel(outputs[0], form), by_channel(outputs[1], form))
    np.testing.assert_allclose(shift, wanted, atol=2e-5)
    assert np.abs(wanted).max() > 1e-3


def test_means_of_quantised_inputs() -> None:
    """By exact sums: W mean(t) - W_hat mean(x)."""
    weights, rounded = np.array([[[1.5, -2.0]]]), np.array([[[1.0, -2.0]]])
    shift = analytic(weights, rounded, np.array([[0.5, 0.25]]), np.array([[1.0, 0.5]]))
    assert shift.tolist() == [1.5 * 1.0 - 2.0 * 0.5 - (1.0 * 0.5 - 2.0 * 0.25)]
    assert analytic(weights, rounded, np.array([[0.5, 0.25]])).tolist() == [0.25]


@pytest.mark.parametrize("name", ["plain", "matmul", "gemm_transposed"])
def test_means_of_channels_are_those_of_the_columns(name: str) -> None:
    """Where no tap sees padding."""
    _, form, examples, _ = case(name)
    moments = Moments.empty(form)
    for index, x in enumerate(examples):
        accumulate(moments, form, x, index, positions=4 * form.positions)
    axis = examples.ndim - 1 if form.operator == "linear" else 2
    others = tuple(other for other in range(examples.ndim) if other != axis)
    np.testing.assert_allclose(column_means(form, examples.mean(axis=others)), moments.mean(), atol=1e-5)


def test_means_of_channels_go_to_their_groups_and_taps() -> None:
    _, form, _, _ = case("depthwise")
    assert column_means(form, np.arange(4.0)).tolist() == [[channel] * 9 for channel in (0.0, 1.0, 2.0, 3.0)]
    _, form, _, _ = case("transpose")  # stride 2 on both axes: a quarter of the positions
    assert column_means(form, np.array([4.0, 8.0, 0.0])).tolist() == [[1.0] * 4 + [2.0] * 4 + [0.0] * 4]


def test_a_bias_takes_the_shift() -> None:
    shift = np.array([0.25, -1.0])
    assert corrected(None, shift).tolist() == [0.25, -1.0]
    made = corrected(np.array([[1.0, 2.0]], np.float32), shift)
    assert made.dtype == np.float32
    assert made.tolist() == [[1.25, 1.0]]
