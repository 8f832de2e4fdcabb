"""AIMET's QDQ model in this project's names: the same function, every name, and the forms that compile to noise."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from npubake.errors import StageError
from npubake.graph.int4 import int4_tensor
from npubake.toolchains.qualcomm.aimet.qdq import form_faults, renamed
from tests.graph.writing import normal
from tests.toolchains.qualcomm.aimet import models


def test_the_function_is_the_same() -> None:
    given = models.quantised()
    feed = {"x": normal(1, 4, 2, 2)}
    (wanted,) = ReferenceEvaluator(given).run(None, feed)
    (found,) = ReferenceEvaluator(renamed(models.floating(), given).model).run(None, feed)
    np.testing.assert_array_equal(found, wanted)
    assert [node.output[0] for node in given.graph.node[:3]] == ["w_qdq", "b_qdq", "x_q"]  # untouched


def test_nodes_of_the_float_model_keep_their_names_and_others_are_called_after_tensors() -> None:
    model = renamed(models.floating(), models.quantised()).model
    names = {node.name: list(node.output) for node in model.graph.node}
    assert names["Conv_c"] == ["c"]
    assert names["w/DequantizeLinear"] == ["w/dequantized"]
    assert names["x/QuantizeLinear"] == ["x/quantized"]
    assert names["r/DequantizeLinear"] == ["r/dequantized"]
    assert names["Sigmoid_y"] == ["y/float"]
    assert names["y/DequantizeLinear"] == ["y"]
    assert {tensor.name for tensor in model.graph.initializer} >= {"w/quantized", "w/scale", "w/zero_point", "x/scale"}
    onnx.checker.check_model(model)


def test_an_output_that_is_read_inside_has_a_form_for_each() -> None:
    floating, given = models.floating(), models.quantised()
    for model in (floating, given):
        model.graph.node.append(onnx.helper.make_node("Neg", ["y"], ["n"], name="Neg_n"))
        model.graph.output.append(onnx.helper.make_tensor_value_info("n", onnx.TensorProto.FLOAT, [1, 4, 2, 2]))
    made = renamed(floating, given)
    inputs = {node.name: list(node.input) for node in made.model.graph.node}
    assert inputs["Neg_n"] == ["y/dequantized"]
    assert (
        inputs["y/DequantizeLinear"] == inputs["y/inner/DequantizeLinear"] == ["y/quantized", "y/scale", "y/zero_point"]
    )
    onnx.checker.check_model(made.model)
    feed = {"x": normal(1, 4, 2, 2)}
    wanted, found = (ReferenceEvaluator(model).run(None, feed) for model in (given, made.model))
    np.testing.assert_array_equal(found, wanted)


def test_provenance_is_what_readers_see() -> None:
    made = renamed(models.floating(), models.quantised())
    seen = {entry.old: entry.new for entry in made.provenance}
    assert seen == {"x": "x/dequantized", "c": "c", "r": "r/dequantized", "y": "y"}


def test_quantisers_as_they_stand_in_the_model() -> None:
    found = renamed(models.floating(), models.quantised()).quantisers
    assert found.keys() == {"x", "r", "y", "w", "b"}
    assert (found["x"].dtype, found["x"].zero_point, found["x"].axis, found["x"].constant) == (
        "uint8",
        (128,),
        None,
        False,
    )
    assert found["x"].scale == (float(np.float32(0.02)),)
    assert (found["w"].dtype, found["w"].axis, found["w"].constant, len(found["w"].scale)) == ("int8", 0, True, 4)
    assert found["b"].dtype == "int32"


def test_a_node_more_or_less_is_another_model() -> None:
    given = models.quantised()
    next(node for node in given.graph.node if node.op_type == "Relu").name = "Relu_other"
    with pytest.raises(StageError) as caught:
        renamed(models.floating(), given)
    assert "Relu_other" in str(caught.value)


def test_a_quantiser_of_an_unknown_tensor_is_refused() -> None:
    given = models.quantised()
    for node in given.graph.node:
        node.input[:] = ["z_scale" if name == "r_scale" else name for name in node.input]
    next(tensor for tensor in given.graph.initializer if tensor.name == "r_scale").name = "z_scale"
    with pytest.raises(StageError) as caught:
        renamed(models.floating(), given)
    assert caught.value.faults[0].where == "q_r_q"


def test_well_formed_models_have_no_form_faults() -> None:
    made = renamed(models.floating(), models.quantised())
    assert list(form_faults(made.quantisers, made.model)) == []


def test_int4_without_zero_point_or_with_one_scale_is_refused() -> None:
    given = models.quantised()
    codes, _scales = models.weights(4)
    kept = [tensor for tensor in given.graph.initializer if tensor.name not in ("w_q", "w_scale")]
    del given.graph.initializer[:]
    given.graph.initializer.extend(
        [*kept, int4_tensor(codes, "w_q"), onnx.numpy_helper.from_array(np.array(0.1, np.float32), "w_scale")]
    )
    weights = next(node for node in given.graph.node if node.output[0] == "w_qdq")
    del weights.input[2]
    del weights.attribute[:]
    made = renamed(models.floating(), given)
    assert [fault.where for fault in form_faults(made.quantisers, made.model)] == ["w/DequantizeLinear", "w"]
