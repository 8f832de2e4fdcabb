"""What the real compiler refuses, and the words that come of it: the node, the reason, what to do, and the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.facts import CompilerOptions
from npubake.toolchains.qualcomm.htp.compiling import Asked, compile_model
from npubake.toolchains.qualcomm.htp.refusal_table import REPLACEMENTS
from tests.qualcomm import needs_qnn
from tests.qualcomm.networks import Builder, convolution, platform, record_of

pytestmark = needs_qnn


def faults_of(model: onnx.ModelProto, soc_model: str = "77") -> tuple[Fault, ...]:
    asked = Asked(model=model.SerializeToString(), platform=platform(soc_model), options=CompilerOptions())
    with pytest.raises(StageError) as refused:
        compile_model(asked, record_of(model), 2)
    return refused.value.faults


@pytest.mark.parametrize("op_type", ["Sinh", "Celu", "Shrink", "Softsign", "Mish"])
def test_an_operator_that_the_compiler_does_not_have(op_type: str) -> None:
    (fault,) = faults_of(convolution(op_type))
    assert fault.where == "after0"
    assert f"node after0 ({op_type}) cannot run on qcs9075 (HTP v73)" in fault.what
    assert f"no operator {op_type}" in fault.what
    assert REPLACEMENTS[op_type] in fault.hint
    assert ("cpu_nodes" in fault.hint) is (op_type != "Mish")  # the provider crashes at a Mish left to the CPU
    assert "compiler's log" in fault.hint


def test_that_every_refused_node_is_named_at_once() -> None:
    faults = faults_of(convolution("Sinh", "Relu", "Celu", "Shrink"))
    assert [fault.where for fault in faults] == ["after0", "after2", "after3"]


CASES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "float on v68": ({"dtype": None}, "93", ("qcs6490 (HTP v68)", "computes in float", "no float unit")),
    "16-bit weights on v68": ({"dtype": np.uint16, "weights": np.int16}, "93", ("need HTP v73", "has v68")),
    "a batch that is open": ({"batch": "N"}, "77", ("is not fixed", "x: N")),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_that_the_soc_does_not_compute(name: str) -> None:
    form, soc_model, words = CASES[name]
    faults = faults_of(convolution(**form), soc_model)
    assert [fault.where for fault in faults] == ["stem"]
    assert all(word in faults[0].what for word in words), faults[0].what


def test_that_all_float_layers_are_named_at_once_on_v68() -> None:
    faults = faults_of(convolution("Relu", "Sigmoid", "Celu", dtype=None), "93")
    assert [fault.where for fault in faults] == ["stem", "after0", "after1", "after2"]
    assert ["no float unit" in fault.what for fault in faults] == [True, True, True, False]


def test_a_tensor_of_too_many_dimensions() -> None:
    edge = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2, 2, 2, 2, 2, 2]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"], name="sum")], "g", edge[:1], edge[1:]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    (fault,) = faults_of(model)
    assert fault.where == "sum"
    assert "7 dimensions" in fault.what


def test_a_layer_that_needs_more_vector_memory_than_there_is() -> None:
    edge = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 8000000]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Softmax", ["x"], ["y"], name="row")], "g", edge[:1], edge[1:]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    (fault,) = faults_of(model)
    assert "30.5 MiB of vector memory" in fault.what  # 8 million elements of 4 bytes: 32000000 / 2**20


def test_a_4_bit_weight_without_a_zero_point() -> None:
    model = convolution("Relu")
    codes = next(one for one in model.graph.initializer if one.name == "w/codes")
    small = onnx.helper.make_tensor("w/codes", onnx.TensorProto.INT4, codes.dims, [0] * int(np.prod(codes.dims)))
    codes.CopyFrom(small)
    node = next(one for one in model.graph.node if one.output[0] == "w/dequantized")
    del node.input[2]
    (fault,) = faults_of(model)
    assert (fault.where, "no zero point" in fault.what) == ("w/dequantized", True)


def test_a_node_that_the_compiler_loses_as_it_makes_the_graph() -> None:
    made = Builder()
    step = 1 / 128
    inputs = [made.quantised("x", step), made.weight("w", np.ones((8, 3, 1, 1), np.float32), np.int8)]
    at = made.quantised(made.add("Conv", inputs, "stem_out", "stem"), 4 * step)
    nan = made.add("IsNaN", [at], "nan")
    made.quantised(made.add("Where", [nan, at, at], "chosen", "choice"), 4 * step)
    faults = faults_of(made.model(), "93")
    assert any("node choice (Where) cannot run on qcs6490 (HTP v68) because the compiler makes no" in fault.what
               for fault in faults)  # fmt: skip
    assert "could not create op" in faults[-1].hint
