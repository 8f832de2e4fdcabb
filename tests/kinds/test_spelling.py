"""One function, spelt in the ways that exporters differ: constants as nodes, inputs with defaults, names, optionals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npubake.calibration.inference import TensorSession
from tests.kinds.graphs import PICTURE, Array, conv, model, node, pictures, two_convolutions, value, weights
from tests.kinds.road import assert_faithful, bake, run, sqnr


def _as_nodes(source: onnx.ModelProto) -> None:
    """Each weight made by a Constant node, first in the graph; one of them behind an Identity."""
    tensors = list(source.graph.initializer)
    made = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in tensors[1:]]
    made += [
        helper.make_node("Constant", [], ["raw"], value=tensors[0]),
        helper.make_node("Identity", ["raw"], [tensors[0].name]),
    ]
    nodes = [*made, *source.graph.node]
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del source.graph.node[:], source.graph.initializer[:]
    source.graph.node.extend(copies)


def _as_inputs(source: onnx.ModelProto) -> None:
    source.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in source.graph.initializer
    )


def _nameless(source: onnx.ModelProto) -> None:
    for each in source.graph.node:
        each.name = ""


def _namesakes(source: onnx.ModelProto) -> None:
    for each in source.graph.node:
        each.name = "layer"


def _treacherous(source: onnx.ModelProto) -> None:
    """Tensors that are called as npubake, or another quantiser, would call new ones."""
    names = {
        "t": "y/quantized",
        "u": "Relu_u",
        "w": "x/quantized",
        "b": "w/quantized",
        "v": "u_1",
        "c": "y/accumulator",
    }
    for each in source.graph.node:
        each.name = "" if each.op_type == "Conv" else "x/QuantizeLinear"
        each.input[:] = [names.get(name, name) for name in each.input]
        each.output[:] = [names.get(name, name) for name in each.output]
    for tensor in source.graph.initializer:
        tensor.name = names[tensor.name]


def _shuffled(source: onnx.ModelProto) -> None:
    """Nodes against the order of computation."""
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in reversed(source.graph.node)]
    del source.graph.node[:]
    source.graph.node.extend(copies)


def _optional(source: onnx.ModelProto) -> None:
    """A Clip of which one bound is absent, where the Relu stood; a Resize with empty inputs behind it."""
    relu = source.graph.node[1]
    clip = helper.make_node("Clip", ["t", "zero", ""], ["k"], name="clip")
    resize = helper.make_node("Resize", ["k", "", "ones"], ["u"], name="resize", mode="nearest")
    relu.CopyFrom(clip)
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in (*source.graph.node[:2], resize)]
    copies.append(onnx.NodeProto.FromString(source.graph.node[2].SerializeToString()))
    del source.graph.node[:]
    source.graph.node.extend(copies)
    source.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    source.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "ones"))


SPELLINGS = (_as_nodes, _as_inputs, _nameless, _namesakes, _treacherous, _shuffled, _optional)


@pytest.mark.parametrize("spell", SPELLINGS, ids=lambda spell: spell.__name__)
def test_the_spelling_changes_nothing(spell: Callable[[onnx.ModelProto], None], tmp_path: Path) -> None:
    plain, source = two_convolutions(), two_convolutions()
    spell(source)
    examples = pictures()
    baked = bake(source, examples, tmp_path)
    assert_faithful(baked, plain, examples, 30)
    assert baked.float_nodes == set()
    for stage in ("import", "optimize", "calibrate", "quantize"):
        made = onnx.load(baked.files[f"{stage}.model"])
        onnx.checker.check_model(made, full_check=True)
        names = [each.name for each in made.graph.node]
        assert all(names)
        assert len(set(names)) == len(names)
        tensors = [tensor.name for tensor in made.graph.initializer]
        tensors += [name for each in made.graph.node for name in each.output if name]
        assert len(set(tensors)) == len(tensors)


def test_a_constant_that_computes_a_weight_is_folded(tmp_path: Path) -> None:
    """Weights scaled and transposed in the graph, as training frameworks leave them."""
    source = model(
        [
            node("Mul", "raw gain", "scaled"),
            node("Transpose", "scaled", "w", perm=[3, 2, 0, 1]),
            node("Conv", "x w", "y", pads=[1, 1, 1, 1]),
        ],
        {"raw": weights(3, 3, 3, 4), "gain": weights(4, seed=2)},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 4, 8, 8))],
    )
    baked = bake(source, pictures(), tmp_path)
    assert [each.op_type for each in baked.summary.nodes] == ["Conv"]
    assert_faithful(baked, source, pictures(), 30)


def test_weights_and_biases_that_several_layers_share_are_split(tmp_path: Path) -> None:
    """The second layer reads values fifty times as large: one integer bias would be wrong for one of them."""
    source = model(
        [conv("x", "b0", "w", "b"), node("Mul", "b0 k", "m"), conv("m", "t", "w", "b"), conv("t", "y", "v", "b")],
        {"w": weights(3, 3, 3, 3), "b": weights(3), "k": np.array(50, np.float32), "v": weights(3, 3, 3, 3, seed=1)},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 3, 8, 8))],
    )
    baked = bake(source, pictures(), tmp_path)
    assert_faithful(baked, source, pictures(), 30)
    made = onnx.load(baked.files["optimize.model"])
    read = [name for each in made.graph.node if each.op_type == "Conv" for name in each.input[1:]]
    assert len(read) == len(set(read)) == 6


GEMM_BIASES: tuple[tuple[int, ...] | None, ...] = ((5,), (1, 5), (1,), (), (3, 5), (3, 1), (1, 1), None)


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", GEMM_BIASES)
def test_gemm_with_every_factor_and_every_bias(
    transposed: tuple[int, int], bias: tuple[int, ...] | None, tmp_path: Path
) -> None:
    first, second = transposed
    shape = (7, 3) if first else (3, 7)
    constants: dict[str, Array] = {"w": weights(5, 7) if second else weights(7, 5), "v": weights(5, 4)}
    if bias is not None:
        constants["b"] = np.abs(weights(*bias, seed=3))  # so that the Relu leaves more than a rest
    gemm = node("Gemm", "x w b" if bias is not None else "x w", "t", alpha=0.5, beta=4.0, transA=first, transB=second)
    source = model(
        [gemm, node("Relu", "t", "u"), node("MatMul", "u v", "y")], constants, [value("x", shape)], [value("y", (3, 4))]
    )
    examples = pictures(8, shape)
    baked = bake(source, examples, tmp_path)
    assert_faithful(baked, source, examples, 28)
    assert baked.float_nodes == set()


def test_a_picture_of_bytes_is_normalised_in_the_graph(tmp_path: Path) -> None:
    source = model(
        [
            node("Cast", "x", "f", to=TensorProto.FLOAT),
            node("Transpose", "f", "p", perm=[0, 3, 1, 2]),
            node("Sub", "p mean", "c"),
            node("Div", "c deviation", "n"),
            conv("n", "t"),
            node("Relu", "t", "y"),
        ],
        {
            "mean": np.array([123.7, 116.3, 103.5], np.float32).reshape(1, 3, 1, 1),
            "deviation": np.array([58.4, 57.1, 57.4], np.float32).reshape(1, 3, 1, 1),
            "w": weights(4, 3, 3, 3),
            "b": weights(4),
        },
        [value("x", (1, 8, 8, 3), TensorProto.UINT8)],
        [value("y", (1, 4, 8, 8))],
    )
    generator = np.random.default_rng(3)
    examples = [{"x": generator.integers(0, 256, (1, 8, 8, 3)).astype(np.uint8)} for _ in range(6)]
    baked = bake(source, examples, tmp_path)
    assert baked.float_nodes == {"Cast_f"}  # bytes to numbers: the only thing left of it that is no integer arithmetic
    for feeds in examples:
        (before,), (after,) = run(source.SerializeToString(), feeds), baked.run("quantize", feeds)
        noise = float(((before - after) ** 2).mean())
        assert 10 * np.log10(float((before**2).mean()) / noise) > 30


def test_a_node_whose_result_nobody_reads_leaves_no_trace(tmp_path: Path) -> None:
    source = two_convolutions()
    source.graph.node.extend([node("Sigmoid", "t", "idle"), node("Exp", "idle", "more")])
    source.graph.initializer.append(numpy_helper.from_array(weights(9), "unread"))
    baked = bake(source, pictures(), tmp_path)
    assert {each.op_type for each in baked.summary.nodes} == {"Conv", "Relu"}
    assert "unread" not in baked.summary.tensors
    assert_faithful(baked, two_convolutions(), pictures(), 30)


def test_an_output_that_others_read_and_one_that_is_an_input(tmp_path: Path) -> None:
    source = two_convolutions()
    source.graph.output.insert(0, value("u", (1, 4, 8, 8)))
    source.graph.output.append(value("copy", (1, 3, 8, 8)))
    source.graph.node.append(node("Identity", "x", "copy"))
    baked = bake(source, pictures(), tmp_path)
    assert baked.summary.outputs == ("u", "y", "copy")
    assert_faithful(baked, source, pictures(), 30)


def test_numbers_without_a_dimension_are_quantised_like_any_tensor(tmp_path: Path) -> None:
    """A constant of one dimension among the integer kernel's would give them one: found by random models."""
    source = two_convolutions()
    source.graph.node.extend(
        [
            node("ReduceMax", "y", "top", keepdims=0),
            node("ReduceSum", "y", "sum", keepdims=0),
            node("ReduceMean", "y", "mean", keepdims=0),
            node("Sub", "top mean", "span"),
            node("Sigmoid", "span", "score"),
        ]
    )
    source.graph.output.extend([value(name, ()) for name in ("sum", "score")])
    baked = bake(source, pictures(), tmp_path)
    assert baked.summary.tensors["span"].shape == ()
    assert baked.float_nodes == set()
    assert [each.shape for each in baked.run("quantize", pictures()[0])[1:]] == [(), ()]
    assert_faithful(baked, source, pictures(), 15)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("kernel", "stride"), [([1, 3], [2, 2]), ([3, 3], [2, 2]), ([2, 2], [3, 3])])
def test_pools_that_round_up_have_the_runtimes_sizes(
    kind: str, kernel: list[int], stride: list[int], tmp_path: Path
) -> None:
    """ONNX's inference counts a window that starts behind the input; the runtime does not: found by random models."""
    picture = (1, 3, 6, 6)
    pool = node(kind, "x", "p", kernel_shape=kernel, strides=stride, ceil_mode=1)
    source = model(
        [pool, node("Conv", "p w", "y")], {"w": weights(4, 3, 1, 1)}, [value("x", picture)], [value("y", None)]
    )
    examples = pictures(6, picture)
    sizes = run(source.SerializeToString(), examples[0])[0].shape
    source.graph.output[0].CopyFrom(value("y", sizes))
    baked = bake(source, examples, tmp_path)
    assert baked.summary.tensors["y"].shape == sizes
    assert baked.float_nodes == set()
    assert_faithful(baked, source, examples, 28)


def test_averages_that_leave_padding_out_are_integers_too(tmp_path: Path) -> None:
    source = model(
        [node("AveragePool", "x", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Conv", "p w", "y")],
        {"w": weights(4, 3, 1, 1)},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 4, 8, 8))],
    )
    baked = bake(source, pictures(), tmp_path)
    assert baked.float_nodes == set()
    assert_faithful(baked, source, pictures(), 28)


def test_parts_without_elements_disturb_nothing(tmp_path: Path) -> None:
    source = model(
        [
            node("Split", "x sizes", "a e", axis=1),
            node("Relu", "e", "r"),
            node("Concat", "r a", "c", axis=1),
            node("Conv", "c w", "y"),
        ],
        {"w": weights(4, 3, 1, 1), "sizes": np.array([3, 0])},
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 4, 8, 8))],
    )
    baked = bake(source, pictures(), tmp_path)
    assert [each.op_type for each in baked.summary.nodes] == ["Conv"]
    assert_faithful(baked, source, pictures(), 28)


def test_a_part_without_elements_among_several_leaves_no_trace(tmp_path: Path) -> None:
    source = model(
        [
            conv("x", "c"),
            node("Split", "c sizes", "a e d", axis=1),
            node("Concat", "d e a", "y", axis=1),
        ],
        {"w": weights(4, 3, 3, 3), "b": weights(4), "sizes": np.array([1, 0, 3])},
        [value("x", PICTURE)],
        [value("y", (1, 4, 8, 8))],
    )
    baked = bake(source, pictures(), tmp_path)
    assert baked.float_nodes == set()
    assert_faithful(baked, source, pictures(), 28)


def test_constants_and_inputs_given_out_as_they_are_stay_what_they_are(tmp_path: Path) -> None:
    """Exporters give out anchors and untouched caches beside what the network computes."""
    anchors = np.arange(10, dtype=np.int64).reshape(5, 2)
    constants = {"w": weights(4, 3, 3, 3), "b": weights(4), "anchors": anchors}
    outputs = [value("y", (1, 4, 8, 8)), value("anchors", (5, 2), TensorProto.INT64)]
    outputs += [value("x", PICTURE), value("b", (4,))]
    source = model([conv("x", "y")], constants, [value("x", PICTURE)], outputs)
    baked = bake(source, pictures(), tmp_path)
    found, given, picture, bias = baked.run("quantize", pictures()[0])
    np.testing.assert_array_equal(given, anchors)
    np.testing.assert_array_equal(bias, constants["b"])
    assert sqnr(pictures()[0]["x"], picture) > 35
    assert sqnr(run(source.SerializeToString(), pictures()[0])[0], found) > 30
    session = TensorSession(baked.files["optimize.model"], ["y", "anchors", "x"], 1)
    np.testing.assert_array_equal(session.run(pictures()[0])["anchors"], anchors)
