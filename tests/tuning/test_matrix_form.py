"""The matrix form of a weighted operator, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from npubake.errors import StageError
from npubake.graph.summary import GraphSummary
from npubake.tuning.matrix_form import MatrixForm, chosen_positions, columns_at, matrix_forms
from tests.tuning.layers import LAYERS, layer


def form(name: str) -> MatrixForm:
    made = layer(name)
    return matrix_forms(made.model, made.summary, ["layer"])["layer"]


@pytest.mark.parametrize("name", LAYERS)
def test_weights_times_columns_is_the_operator(name: str) -> None:
    made, shape = layer(name), form(name)
    x = made.inputs(1)[0]
    read = columns_at(shape, x, np.arange(shape.positions))
    assert read.dtype == np.float32
    assert read.shape == (shape.groups, shape.columns, shape.positions)
    product = np.einsum("grk,gkp->grp", shape.to_matrix(made.weights).astype(np.float64), read)
    found = product.reshape(shape.groups * shape.rows, shape.positions) + made.bias[:, None]
    wanted = made.output(x)
    if shape.operator == "linear":
        wanted = wanted.reshape(-1, wanted.shape[-1]).T
    else:
        wanted = np.moveaxis(wanted, 1, 0).reshape(wanted.shape[1], -1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_the_matrix_goes_back_into_the_initialiser(name: str) -> None:
    made, shape = layer(name), form(name)
    assert np.array_equal(shape.from_matrix(shape.to_matrix(made.weights)), made.weights)


def test_values_by_channel_become_values_by_row() -> None:
    assert form("grouped").by_row(np.arange(6.0)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert form("transpose_grouped").by_row(np.arange(3.0)).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert form("transpose_grouped").by_row(np.arange(6.0)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert form("gemm").by_row(np.arange(4.0)).tolist() == [[0, 1, 2, 3]]


def test_chosen_positions_are_distinct_repeatable_and_spread() -> None:
    shape = form("plain")  # 42 positions
    chosen = chosen_positions(shape, 3, 10)
    assert np.array_equal(chosen, chosen_positions(shape, 3, 10))
    assert not np.array_equal(chosen, chosen_positions(shape, 4, 10))
    for stratum, at in enumerate(chosen):
        assert stratum * 42 // 10 <= at < (stratum + 1) * 42 // 10
    assert chosen_positions(shape, 0, 42).tolist() == chosen_positions(shape, 5, 999).tolist() == list(range(42))


def test_every_position_is_chosen_about_as_often() -> None:
    shape = form("plain")
    counts = np.bincount(np.concatenate([chosen_positions(shape, index, 6) for index in range(7000)]), minlength=42)
    assert counts.min() > 850  # 1,000 expected, standard deviation 29
    assert counts.max() < 1150


def test_the_hash_is_splitmix64() -> None:
    """First outputs of splitmix64 seeded with 0: the published test vector of its reference implementation."""
    shape = form("plain")
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert chosen_positions(shape, 0, 3).tolist() == [14 * at + value % 14 for at, value in enumerate(published)]


def test_every_group_without_weights_is_named() -> None:
    nodes = [helper.make_node("Sigmoid", ["x"], ["y"], name="squash")]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    model = helper.make_model(helper.make_graph(nodes, "g", [value], []))
    empty = GraphSummary(inputs=("x",), outputs=("y",), tensors={}, nodes=(), groups=(), provenance=())
    with pytest.raises(StageError) as caught:
        matrix_forms(model, empty, ["squash", "other"])
    assert [fault.where for fault in caught.value.faults] == ["squash", "other"]
