"""tuning: mean columns against the columns themselves, and corrected biases against the mean of a layer's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.tuning.biases import corrected_from_statistics, covered_means, lost_mean
from npubake.tuning.candidate import candidate
from npubake.tuning.matrix_form import MatrixForm, columns_at, matrix_forms
from npubake.tuning.moments import Moments, accumulate
from tests.tuning.layers import LAYERS, Layer, layer
from tests.tuning.networks import network, pictures, prepare, two_readers


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
    shift = lost_mean(form.to_matrix(made.weights), form.to_matrix(rounded), moments.mean())
    outputs = [np.stack([made.output(x, weights) for x in examples]) for weights in (None, rounded)]
    wanted = by_channel(outputs[0], form) - by_channel(outputs[1], form)
    np.testing.assert_allclose(shift, wanted, atol=2e-5)
    assert np.abs(wanted).max() > 1e-3


def test_means_of_quantised_inputs() -> None:
    """By exact sums: W mean(t) - W_hat mean(x)."""
    weights, rounded = np.array([[[1.5, -2.0]]]), np.array([[[1.0, -2.0]]])
    shift = lost_mean(weights, rounded, np.array([[0.5, 0.25]]), np.array([[1.0, 0.5]]))
    assert shift.tolist() == [1.5 * 1.0 - 2.0 * 0.5 - (1.0 * 0.5 - 2.0 * 0.25)]
    assert lost_mean(weights, rounded, np.array([[0.5, 0.25]])).tolist() == [0.25]


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_means_of_columns_of_an_even_picture(name: str) -> None:
    """Exact where every channel holds one value, padding, stride and grouping included."""
    made = layer(name)
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    channels = form.input_shape[-1 if form.operator == "linear" else 1]
    means = np.random.default_rng(2).normal(size=channels)
    shape = (channels,) if form.operator == "linear" else (channels,) + (1,) * len(form.kernel)
    picture = np.broadcast_to(means.reshape(shape), form.input_shape)
    columns = columns_at(form, picture, np.arange(form.positions))
    np.testing.assert_allclose(covered_means(form, means), columns.mean(axis=-1), rtol=0, atol=1e-12)


def test_the_mean_output_of_the_first_layer_is_given_back(tmp_path: Path) -> None:
    """Mean over the calibration pictures of what the first convolution gives, before its Relu, with rounded weights."""
    prepared = prepare(tmp_path)
    made = candidate(prepared.start(weights={"granularity": "per_tensor"}))  # coarse weights: something to correct
    biases = corrected_from_statistics(made, frozenset(made.layers))
    conv = next(node for node in prepared.model.graph.node if node.op_type == "Conv")
    errors = []
    for constants in (made.simulated.constants, {**made.simulated.constants, **biases}):
        means = [_mean_output(conv, values) for values in (dict[str, NDArray[np.float32]](), constants)]
        errors.append(float(np.abs(means[0] - means[1]).max()))
    assert errors[1] < errors[0] / 2  # the border of a real picture is not as its middle is


def test_means_along_the_axis_of_another_reader_correct_nothing(tmp_path: Path) -> None:
    """As many columns as channels: the means would fit, and be those of something else."""
    made = candidate(prepare(tmp_path, source=two_readers()).start())
    biases = corrected_from_statistics(made, frozenset(made.layers))
    assert {layer.form.operator for layer in made.layers.values()} == {"conv", "linear"}
    wanted = {layer.operand.bias_name for layer in made.layers.values() if layer.form.operator == "conv"}
    assert biases.keys() == wanted


def _mean_output(conv: onnx.NodeProto, constants: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> t (float[1,3,12,12] x) => (float[1,8,12,12] y) {'
        " y = Conv<pads = [1,1,1,1]>(x, w, b) }"
    )
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in network().graph.initializer}
    for name, own in (("w", conv.input[1]), ("b", conv.input[2])):
        model.graph.initializer.append(numpy_helper.from_array(constants.get(own, stored[own]), name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = [session.run(None, {"x": picture})[0].mean(axis=(0, 2, 3)) for picture in pictures(12)]
    return np.asarray(np.mean(outputs, axis=0))
