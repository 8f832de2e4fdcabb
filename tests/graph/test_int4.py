"""graph: packing of INT4, against onnx's own reader and the runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.execution import run_model
from npubake.graph.int4 import int4_tensor


@given(st.lists(st.integers(-8, 7), max_size=9))
def test_onnx_reads_what_was_packed(values: list[int]) -> None:
    tensor = int4_tensor(np.array(values, np.int64), "w")
    assert (tensor.data_type, list(tensor.dims), tensor.name) == (TensorProto.INT4, [len(values)], "w")
    assert len(tensor.raw_data) == (len(values) + 1) // 2
    assert numpy_helper.to_array(tensor).astype(int).tolist() == values


def test_the_runtime_reads_what_was_packed() -> None:
    values = np.random.default_rng(0).integers(-8, 8, (3, 5, 1))
    graph = helper.make_graph(
        [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)],
        "cast",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5, 1])],
        [int4_tensor(values, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(run_model(model, {})["y"], values)


@pytest.mark.parametrize("value", [-9, 8])
def test_what_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="beyond 4 bits"):
        int4_tensor(np.array([value]), "w")
