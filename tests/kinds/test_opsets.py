"""Sources of every opset from 7 on: each as its exporters wrote it, brought to one version, computing the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npubake.graph.importing import import_model
from npubake.graph.optimizing import optimize_model
from tests.kinds.graphs import Array, conv, model, node, pictures, value, weights
from tests.kinds.road import assert_faithful, bake, run, sqnr


def _network(opset: int) -> onnx.ModelProto:
    """Operators whose attributes became inputs, or whose meaning moved, in the spelling of ``opset``."""
    constants: dict[str, Array] = {
        "w": weights(4, 3, 3, 3),
        "b": weights(4),
        "gamma": weights(4, seed=1) + 1,
        "beta": weights(4, seed=2),
        "mean": weights(4, seed=3),
        "variance": np.abs(weights(4, seed=4)) + np.float32(0.5),
        "fc": weights(64, 6),
        "fcb": weights(6, seed=5),
        "shape": np.array([1, 64]),
    }

    def given(name: str, array: Array) -> str:
        constants[name] = array
        return name

    nodes = [conv("x", "c"), node("BatchNormalization", "c gamma beta mean variance", "n")]
    if opset < 11:
        nodes += [node("Clip", "n", "r", min=0.0, max=6.0), node("Pad", "r", "p", pads=[0, 0, 1, 1, 0, 0, 1, 1])]
    else:
        given("zero", np.array(0, np.float32))
        given("six", np.array(6, np.float32))
        given("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1]))
        nodes += [node("Clip", "n zero six", "r"), node("Pad", "r pads", "p")]
    nodes.append(node("MaxPool", "p", "m", kernel_shape=[2, 2], strides=[2, 2]))  # [1,4,5,5]
    if opset < 10:
        nodes.append(node("Slice", "m", "s", axes=[2, 3], starts=[0, 0], ends=[4, 4]))
    else:
        given("starts", np.array([0, 0]))
        given("ends", np.array([4, 4]))
        given("axes", np.array([2, 3]))
        nodes.append(node("Slice", "m starts ends axes", "s"))
    if opset < 13:
        nodes.append(node("Split", "s", "s1 s2", axis=1, split=[1, 3]))
    else:
        nodes.append(node("Split", f"s {given('parts', np.array([1, 3]))}", "s1 s2", axis=1))
    nodes.append(node("Concat", "s2 s1", "j", axis=1))
    scale = np.array([1, 1, 2, 2], np.float32)
    if opset == 9:
        nodes.append(node("Upsample", f"j {given('scales', scale)}", "u", mode="nearest"))
    elif opset < 9:
        nodes.append(node("Upsample", "j", "u", mode="nearest", scales=[1.0, 1.0, 2.0, 2.0]))
    elif opset == 10:
        nodes.append(node("Resize", f"j {given('scales', scale)}", "u", mode="nearest"))
    else:
        given("roi", np.zeros(0, np.float32))
        resize = node("Resize", f"j roi {given('scales', scale)}", "u", mode="nearest", nearest_mode="floor")
        resize.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        nodes.append(resize)
    nodes.append(node("AveragePool", "u", "a", kernel_shape=[2, 2], strides=[2, 2]))
    nodes += [node("Reshape", "a shape", "f"), node("Gemm", "f fc fcb", "g"), node("Softmax", "g", "p2", axis=1)]
    if opset < 13:
        nodes += [node("Unsqueeze", "p2", "v", axes=[0]), node("ReduceSum", "v", "t", axes=[2], keepdims=0)]
    else:
        given("one", np.array([0]))
        given("two", np.array([2]))
        nodes += [node("Unsqueeze", "p2 one", "v"), node("ReduceSum", "v two", "t", keepdims=0)]
    if opset < 18:
        nodes.append(node("ReduceMean", "v", "h", axes=[0], keepdims=0))
    else:
        nodes.append(node("ReduceMean", "v one", "h", keepdims=0))
    nodes += [node("Mul", "h t", "i"), node("Dropout", "i", "y")]
    return model(nodes, constants, [value("x", (1, 3, 8, 8))], [value("y", (1, 6))], opset)


@pytest.mark.parametrize("opset", range(7, 24))
def test_every_opset_is_brought_to_one_and_quantised(opset: int, tmp_path: Path) -> None:
    source, examples = _network(opset), pictures()
    baked = bake(source, examples, tmp_path)
    made = onnx.load(baked.files["import.model"])
    assert {entry.domain: entry.version for entry in made.opset_import} == {"": 21}
    for feeds in examples:
        (before,), (after,) = run(source.SerializeToString(), feeds), baked.run("import", feeds)
        assert sqnr(before, after) > 100
    assert_faithful(baked, source, examples, 25)
    assert baked.float_nodes == set()


@pytest.mark.parametrize(
    ("opset", "made", "constants", "shape"),
    [
        (23, node("RMSNormalization", "x g", "y", axis=-1), {"g": weights(8) + 1}, (1, 4, 8)),
        (23, node("Attention", "x x x", "y", q_num_heads=2, kv_num_heads=2), {}, (1, 4, 8)),
        (23, node("RotaryEmbedding", "x c s", "y"), dict.fromkeys("cs", weights(1, 4, 4)), (1, 2, 4, 8)),
        (20, node("Gelu", "x", "y", approximate="tanh"), {}, (1, 4, 8)),
        (22, node("HardSwish", "x", "y"), {}, (1, 4, 8)),
        (21, node("GroupNormalization", "x g g", "y", num_groups=2), {"g": weights(4) + 1}, (1, 4, 8)),
        (23, node("GroupNormalization", "x g g", "y", num_groups=2), {"g": weights(4) + 1}, (1, 4, 8)),
        (13, node("MeanVarianceNormalization", "x", "y", axes=[0, 2]), {}, (1, 4, 8)),
    ],
    ids=lambda each: each.op_type if isinstance(each, onnx.NodeProto) else None,
)  # fmt: skip
def test_operators_that_came_late_are_written_out(
    opset: int, made: onnx.NodeProto, constants: dict[str, Array], shape: tuple[int, ...], tmp_path: Path
) -> None:
    source = model([made], constants, [value("x", shape)], [value("y", shape)], opset)
    examples = pictures(6, shape)
    assert_faithful(bake(source, examples, tmp_path), source, examples, 30)


def test_an_operator_of_opset_24_is_compared_by_onnxs_own_evaluator() -> None:
    """ONNX Runtime does not load opset 24 yet."""
    source = model([node("Swish", "x", "y", alpha=1.5)], {}, [value("x", (2, 3))], [value("y", (2, 3))], 24)
    made = optimize_model(import_model(source.SerializeToString(), {})).model
    x = weights(2, 3).astype(np.float64)
    (found,) = run(made.SerializeToString(), {"x": weights(2, 3)})
    np.testing.assert_allclose(found, x / (1 + np.exp(-1.5 * x)), rtol=1e-6)


@pytest.mark.parametrize("opset", [1, 5, 6])
def test_an_opset_before_7_is_verified_by_onnxs_own_evaluator(opset: int) -> None:
    source = model(
        [node("Relu", "x", "r"), node("Neg", "r", "y")], {}, [value("x", (2, 3))], [value("y", (2, 3))], opset
    )
    made = import_model(source.SerializeToString(), {})
    np.testing.assert_array_equal(run(made.SerializeToString(), {"x": weights(2, 3)})[0], -np.maximum(weights(2, 3), 0))
