"""graph.importing: kinds of source models that users brought, each with the one right behaviour."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import Fault, RecipeError
from npubake.graph.describing import tensor_facts
from npubake.graph.execution import random_feeds, run_model
from npubake.graph.importing import import_model
from npubake.graph.inference import static_shape
from npubake.graph.opset import IR_VERSION, OPSET
from npubake.graph.optimizing import optimize_model
from npubake.graph.outlining import FLOAT_DOMAIN
from tests.graph.writing import Array, constants_of, integers, normal, operators, parse, scalar

IMAGE = "float[1,3,8,8] x => float[1,4,8,8] y"
BODY = "t = Conv<pads=[1,1,1,1]>(x, w, b) u = Relu(t) y = Conv<pads=[1,1,1,1]>(u, w2, b2)"


def _weights() -> dict[str, Array]:
    return {"w": normal(4, 3, 3, 3), "b": normal(4), "w2": normal(4, 4, 3, 3), "b2": normal(4, seed=2)}


def _import(model: onnx.ModelProto, shapes: dict[str, Sequence[int] | None] | None = None) -> onnx.ModelProto:
    return import_model(model.SerializeToString(), shapes or {}, "model.onnx")


def _faults(model: onnx.ModelProto, shapes: dict[str, Sequence[int] | None] | None = None) -> tuple[Fault, ...]:
    with pytest.raises(RecipeError) as caught:
        _import(model, shapes)
    return caught.value.faults


def _notes(model: onnx.ModelProto) -> dict[str, Any]:
    (entry,) = (entry for entry in model.metadata_props if entry.key == "npubake.import")
    return dict(json.loads(entry.value))


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21])
def test_older_operators_are_brought_to_one_version_and_compute_the_same(opset: int) -> None:
    source = parse(IMAGE, BODY, _weights(), opset)
    model = _import(source)
    assert [entry.version for entry in model.opset_import] == [OPSET]
    assert model.ir_version == IR_VERSION
    assert _notes(model)["opset_from"] == opset
    feeds = random_feeds(source, seed=1)
    np.testing.assert_allclose(run_model(model, feeds)["y"], run_model(source, feeds)["y"], rtol=1e-6, atol=1e-6)
    assert all(static_shape(value) is not None for value in model.graph.value_info)
    assert {value.name for value in model.graph.value_info} == {"t", "u"}


def test_unnamed_nodes_get_names_that_repeat_and_hit_nothing() -> None:
    source = parse(IMAGE, BODY.replace("t", "Conv_y"), _weights())
    model = _import(source)
    assert [node.name for node in model.graph.node] == ["Conv_Conv_y", "Relu_u", "Conv_y_2"]
    assert _import(source) == model
    tensors = {name for node in model.graph.node for name in node.output}
    assert not tensors & {node.name for node in model.graph.node}


def test_a_name_taken_twice_keeps_its_first_bearer() -> None:
    source = parse(IMAGE, BODY, _weights())
    for node in source.graph.node:
        node.name = "layer"
    names = [node.name for node in _import(source).graph.node]
    assert names[0] == "layer"
    assert len(set(names)) == 3


def test_half_precision_is_promoted_and_said_so() -> None:
    half = {name: value.astype(np.float16) for name, value in _weights().items()}
    source = parse(IMAGE.replace("float[", "float16["), BODY, half)
    model = _import(source)
    assert {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)} == {
        TensorProto.FLOAT
    }
    assert all(value.dtype == np.float32 for value in constants_of(model).values())
    np.testing.assert_array_equal(constants_of(model)["w"], half["w"].astype(np.float32))
    assert _notes(model)["promoted"] == ["w", "b", "w2", "b2", "x", "y"]


def test_casts_to_half_precision_are_promoted_too() -> None:
    source = parse("float[2,3] x => float[2,3] y", "h = Cast<to=10>(x) r = Relu(h) y = Cast<to=1>(r)")
    model = _import(source)
    assert operators(optimize_model(model).model) == ["Relu"]


def test_initialisers_that_are_inputs_become_constants() -> None:
    source = parse(IMAGE, BODY, _weights())
    source.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]))
    source.ir_version = 3
    model = _import(source)
    assert [value.name for value in model.graph.input] == ["x"]
    assert _notes(model)["initialisers_no_longer_inputs"] == ["w"]


def test_each_dimension_without_size_is_named() -> None:
    source = parse('float["N",3,"h","w"] x => float["N",4,"h","w"] y', BODY, _weights())
    faults = _faults(source)
    assert len(faults) == 2
    assert {fault.path for fault in faults} == {"$.model.inputs.x.shape"}
    assert {word for fault in faults for word in ("axis 2 (h)", "axis 3 (w)") if word in fault.what} == {
        "axis 2 (h)",
        "axis 3 (w)",
    }


def test_stated_sizes_reach_every_tensor() -> None:
    source = parse('float["N",3,"h","w"] x => float["N",4,"h","w"] y', BODY, _weights())
    model = _import(source, {"x": [1, 3, 10, 8]})
    assert static_shape(model.graph.output[0]) == (1, 4, 10, 8)


def _marked() -> onnx.ModelProto:
    """Sizes that are not known as Paddle's exporter writes them: -1, and one mark for all the others."""
    source = parse('float["N",3,"?","?"] x => float["N",4,"?","?"] y', BODY, _weights())
    for value in (*source.graph.input, *source.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    return source


def test_marks_of_unknown_sizes_are_neither_sizes_nor_names() -> None:
    model = _import(_marked(), {"x": [1, 3, 10, 8]})
    assert static_shape(model.graph.input[0]) == (1, 3, 10, 8)
    assert static_shape(model.graph.output[0]) == (1, 4, 10, 8)


def test_marks_of_unknown_sizes_are_asked_for() -> None:
    assert ["axis" in fault.what for fault in _faults(_marked())] == [True, True, True]


def test_marks_of_unknown_sizes_are_described_as_open(tmp_path: Path) -> None:
    onnx.save(_marked(), tmp_path / "marked.onnx")
    inputs, outputs = tensor_facts(tmp_path / "marked.onnx")
    assert inputs == [("x", ("?", 3, "?", "?"), "float32")]
    assert outputs == [("y", ("?", 4, "?", "?"), "float32")]


@pytest.mark.parametrize(
    ("shape", "word"),
    [([1, 3, 8], "dimensions"), ([1, 4, 8, 8], "axis 1"), ([2, 3, 8, 8], "axis 0")],
)
def test_sizes_that_contradict_the_model_are_refused(shape: list[int], word: str) -> None:
    (fault,) = _faults(parse(IMAGE, BODY, _weights()), {"x": shape})
    assert word in fault.what


def test_an_unknown_input_gets_the_nearest_name() -> None:
    source = parse(IMAGE.replace(" x ", " images "), BODY.replace("(x", "(images"), _weights())
    (fault,) = _faults(source, {"image": None})
    assert "'images'" in fault.hint


def test_sizes_computed_in_the_graph_are_followed() -> None:
    source = parse(
        'float["batch",6,4,4] x => float["a","b","c"] y',
        "s = Shape(x) n = Gather(s, zero) k = Concat<axis=0>(n, rest) r = Reshape(x, k) t = Shape(r)"
        " g = Slice(t, one, two) e = Mul(g, half) h = ConstantOfShape(e) f = Unsqueeze(h, axes) y = Add(r, f)",
        {"zero": integers(0), "rest": integers(6, -1), "one": integers(2), "two": integers(3), "half": integers(1),
         "axes": integers(0, 1)},
    )  # fmt: skip
    assert static_shape(_import(source).graph.output[0]) == (1, 6, 16)


def test_recurrent_layers_are_taken() -> None:
    source = parse(
        "float[7,1,5] x => float[7,1,4] y",
        "Y, Yh, Yc = LSTM<hidden_size=6>(x, W, R, B) s = Squeeze(Y, ax) y = MatMul(s, w)",
        {"W": normal(1, 24, 5), "R": normal(1, 24, 6), "B": normal(1, 48), "ax": integers(1), "w": normal(6, 4)},
        opset=17,
    )
    groups = optimize_model(_import(source)).summary.groups
    assert [group.kind for group in groups] == ["float", "movement", "linear"]


def test_mask_constants_of_the_largest_float_are_clamped() -> None:
    hidden = np.array([[[True] * 4 + [False] * 2]])
    source = parse(
        "float[1,6,8] x => float[1,6,8] y",
        "q = MatMul(x, wq) t = Transpose<perm=[0,2,1]>(x) s = MatMul(q, t) m = Where(mask, zero, low) a = Add(s, m)"
        " p = Softmax(a) y = MatMul(p, x)",
        {"wq": normal(8, 8), "mask": hidden, "zero": scalar(0), "low": scalar(float(np.finfo(np.float32).min))},
        opset=17,
    )
    model = _import(source)
    optimized = optimize_model(model).model
    assert min(float(value.min()) for value in constants_of(optimized).values()) >= -128
    feeds = random_feeds(model, seed=1)
    np.testing.assert_array_equal(run_model(optimized, feeds)["y"], run_model(model, feeds)["y"])


def test_shared_weights_of_the_source_stay_equal_and_names_hit_nothing() -> None:
    weights = _weights()
    body = "b0 = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(b0) y = Conv<pads=[1,1,1,1]>(r, w2, b)"
    optimized = optimize_model(_import(parse(IMAGE, body, weights))).model
    names = [tensor.name for tensor in optimized.graph.initializer]
    made = [name for node in optimized.graph.node for name in node.output]
    assert len({*names, *made}) == len(names) + len(made) == 7


def _if(condition: str, constants: dict[str, Array]) -> onnx.ModelProto:
    return parse(
        "float[1,3,8,8] x, bool c => float[1,3,8,8] y",
        f"{condition} y = If(k) <then_branch = yes () => (float[1,3,8,8] r) {{ t = Relu(x) r = Mul(t, two) }},"
        " else_branch = no () => (float[1,3,8,8] q) { q = Neg(x) }>",
        constants,
    )


@pytest.mark.parametrize(
    ("condition", "taken"),
    [("s = Shape(x) n = Gather(s, one) k = Equal(n, three)", True), ("k = Constant<value = bool {0}>()", False)],
)
def test_a_condition_that_is_known_is_taken(condition: str, taken: bool) -> None:
    source = _if(condition, {"two": scalar(2), "one": integers(1).reshape(()), "three": integers(3).reshape(())})
    model = _import(source)
    values = normal(1, 3, 8, 8)
    answer = run_model(model, {"x": values, "c": np.array(True)})["y"]
    np.testing.assert_array_equal(answer, np.maximum(values, 0) * 2 if taken else -values)
    assert "If" not in operators(model)


@pytest.mark.parametrize("condition", [True, False])
def test_a_condition_that_is_computed_stays_in_float_as_a_call(condition: bool) -> None:
    model = _import(_if("k = Not(c)", {"two": scalar(2)}))
    call = next(node for node in model.graph.node if node.name == "If_y")
    assert (call.domain, call.op_type, sorted(call.input)) == (FLOAT_DOMAIN, "If", ["k", "x"])
    (outlined,) = _notes(model)["outlined"]
    assert (outlined["node"], len(outlined["inner"])) == ("If_y", 3)
    values = normal(1, 3, 8, 8)
    answer = run_model(model, {"x": values, "c": np.array(condition)})["y"]
    np.testing.assert_array_equal(answer, -values if condition else np.maximum(values, 0) * 2)


def test_every_fault_at_once_with_node_and_hint() -> None:
    weights = _weights()
    weights["w"][0, 0, 0, 0] = np.nan
    weights["b2"][1] = np.inf
    source = parse(
        'float[1,3,"h",8] x, string[2] s => float[1,4,8,8] y',
        BODY + " n = NonZero(y) z = FusedThing(y) r = RandomNormalLike(y) q = SequenceConstruct(y)"
        " m = BatchNormalization<training_mode=1>(y, b, b, b, b) d = ConvInteger(i, i)",
        {**weights, "i": np.ones((1, 1, 1, 1), np.int8)},
    )
    extra = helper.make_node("Gelu", ["y"], ["g"], name="vendor", domain="com.vendor")
    source.graph.node.append(extra)
    source.graph.node.append(helper.make_node("Relu", ["nowhere"], ["t"], name="twice"))
    source.opset_import.append(helper.make_opsetid("com.vendor", 1))
    faults = _faults(source)
    assert all(fault.hint and fault.where for fault in faults)
    where = {fault.where for fault in faults}
    assert where >= {"x", "s", "w", "b2", "NonZero_n", "FusedThing_z", "RandomNormalLike_r", "SequenceConstruct_q",
                     "BatchNormalization_m", "ConvInteger_d", "vendor", "twice"}  # fmt: skip
    assert len(faults) == 13  # the node that makes a tensor twice also reads one that nothing makes


def test_infinite_masks_are_no_fault() -> None:
    hidden = np.array([0, 0, -np.inf], np.float32)
    model = _import(parse("float[2,3] x => float[2,3] y", "a = Add(x, m) y = Softmax(a)", {"m": hidden}))
    assert operators(model) == ["Add", "Softmax"]


def test_sparse_initialisers_are_refused() -> None:
    source = parse("float[4] x => float[4] y", "y = Add(x, s)")
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    indices = numpy_helper.from_array(np.array([2]), "s_indices")
    source.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    (fault,) = _faults(source)
    assert fault.where == "s"


def test_sizes_that_contradict_each_other_are_refused() -> None:
    (fault,) = _faults(parse("float[2,3] x => float[2,3] y", "y = MatMul(x, w)", {"w": normal(4, 3)}))
    assert fault.hint


def test_what_is_no_model_is_refused() -> None:
    for data in (b"not a model at all", b"", b"\xff" * 40):
        with pytest.raises(RecipeError):
            import_model(data, {})


def test_weights_in_other_files_are_refused_by_name() -> None:
    source = parse(IMAGE, BODY, _weights())
    tensor = source.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    (fault,) = _faults(source)
    assert "'w'" in fault.what


def test_functions_of_the_model_are_inlined() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "own": 1]>
    case (float[2,3] x) => (float[2,3] y) { y = own.twice(x) }
    <domain: "own", opset_import: ["": 21]> twice (a) => (b) { b = Add(a, a) }"""
    model = _import(onnx.parser.parse_model(text))
    assert operators(model) == ["Add"]


def test_a_function_for_another_opset_is_refused_by_both_versions() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "own": 1]>
    case (float[2,3] x) => (float[2,3] y) { y = own.twice(x) }
    <domain: "own", opset_import: ["": 17]> twice (a) => (b) { b = Add(a, a) }"""
    (fault,) = _faults(onnx.parser.parse_model(text))
    assert "imports operators of ONNX 17, the model 21" in fault.what
    assert "as a function" not in fault.hint  # which it is


@pytest.mark.parametrize("opset", [17, 21])
def test_a_newer_form_of_the_file_is_named(opset: int) -> None:
    source = parse("float[2,3] x => float[2,3] y", "y = Relu(x)", {})
    source.opset_import[0].version = opset
    source.ir_version = 99
    (fault,) = _faults(source)
    assert "IR version 99" in fault.what


def test_an_operator_without_a_name_is_said_to_have_none() -> None:
    source = parse("float[2,3] x => float[2,3] y", "y = Relu(x)", {})
    source.graph.node[0].op_type = ""
    (fault,) = _faults(source)
    assert fault.what.startswith("an empty name is no operator")
