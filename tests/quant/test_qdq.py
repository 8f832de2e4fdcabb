"""quant: the calibrated model, run in onnxruntime and compared tensor by tensor with numpy and with the float model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.errors import StageError
from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary
from npubake.quant.assign import Assignment, Subject, assign
from npubake.quant.operands import ModelFacts
from npubake.quant.parameters import LIMITS, TensorParameters
from npubake.quant.qdq import CalibratedModel, _check_types, calibrated_model
from npubake.quant.request import parse_request
from npubake.quant.weights import effective_weights, encode_weights
from tests.quant.graphs import NETWORK, Arrays, all_values, constants, observed, parsed, session, sqnr

LANES = ["a8w8", "a16w8", "a16w16", "w4a16", "fp16_a8w8", "fp16"]
MODEL, SUMMARY = parsed(NETWORK, constants())
FACTS = ModelFacts(initializers=constants(), attributes={})
FEEDS = {"x": np.random.default_rng(11).uniform(0, 1, (1, 3, 8, 8)).astype(np.float32)}
STATISTICS = observed(MODEL, SUMMARY, [FEEDS])


def quantised(lane: str, matched: tuple[str, ...] = (), activation: str = "") -> tuple[Assignment, CalibratedModel]:
    overrides = [{"match": {}, "set": {"activation": activation}}] if activation else []
    request = parse_request({"lane": lane, "calibration": {"asymmetric": True}, "layer_overrides": overrides})
    subject = Subject(summary=SUMMARY, graph_digest="", facts=FACTS, statistics=STATISTICS)
    assignment = assign(subject, request, [matched] if activation else [])
    return assignment, calibrated_model(MODEL, SUMMARY, FACTS, assignment.parameters)


def small(text: str, values: Arrays, feeds: Arrays, lane: str) -> tuple[GraphSummary, onnx.ModelProto, CalibratedModel]:
    model, summary = parsed(text, values)
    facts = ModelFacts(initializers=values, attributes={})
    subject = Subject(
        summary=summary, graph_digest="", facts=facts, statistics=observed(model, summary, [feeds])
    )  # fmt: skip
    parameters = assign(subject, parse_request({"lane": lane}), []).parameters
    return summary, model, calibrated_model(model, summary, facts, parameters)


def rounded(values: NDArray[np.float32], entry: TensorParameters) -> NDArray[np.float32]:
    """Fake quantisation written from the definition, in float32."""
    low, high = LIMITS[entry.dtype]
    codes = np.clip(np.rint(values / np.float32(entry.scale)) + entry.zero_point, low, high)
    return np.asarray((codes - entry.zero_point) * np.float32(entry.scale), np.float32)


def initializers(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize("lane", LANES)
def test_the_model_is_valid_and_keeps_its_names(lane: str) -> None:
    _, made = quantised(lane)
    onnx.checker.check_model(made.model, full_check=True)
    names = [node.name for node in made.model.graph.node]
    assert len(set(names)) == len(names)
    assert [name for name in names if name in {node.name for node in SUMMARY.nodes}] == [n.name for n in SUMMARY.nodes]
    assert tuple(value.name for value in made.model.graph.input) == SUMMARY.inputs
    assert tuple(value.name for value in made.model.graph.output) == SUMMARY.outputs


@pytest.mark.parametrize("lane", LANES)
def test_every_integer_tensor_is_there_in_its_type(lane: str) -> None:
    assignment, made = quantised(lane)
    values = all_values(made.model, FEEDS)
    assert assignment.parameters.inner == (("c2",) if lane == "a8w8" else ())
    for name, entry in assignment.parameters.tensors.items():
        if name in assignment.parameters.inner:
            assert (entry.dtype, entry.zero_point) == ("int16", 0)
            continue
        assert values[f"{name}/quantized"].dtype == np.dtype(entry.dtype)
        source = f"{name}/float" if f"{name}/float" in values else name
        source = f"{name}/rounded" if f"{name}/rounded" in values else source
        np.testing.assert_array_equal(values[f"{name}/dequantized"], rounded(values[source], entry))
    codes = {name.removesuffix("/quantized") for name in values if name.endswith("/quantized")}
    assert codes == set(assignment.parameters.tensors) - set(assignment.parameters.inner)


@pytest.mark.parametrize("lane", LANES)
def test_provenance_is_true_by_value(lane: str) -> None:
    """Each tensor of the optimised graph and its image differ by quantisation alone."""
    assignment, made = quantised(lane)
    old, new = all_values(MODEL, FEEDS), all_values(made.model, FEEDS)
    for name in set(assignment.record.cut_ranges) - set(assignment.parameters.inner):
        entry = assignment.parameters.tensors[name]
        old[name] = np.clip(old[name], entry.low, entry.high)
    computed = [*SUMMARY.inputs, *(name for node in SUMMARY.nodes for name in node.outputs)]
    assert [entry.old for entry in made.provenance] == computed
    for link in made.provenance:
        assert link.relation == "same"
        assert sqnr(old[link.old], new[link.new]) > (6 if lane == "w4a16" else 20), link
    outputs = {entry.old: entry.new for entry in made.provenance if entry.old in SUMMARY.outputs}
    assert outputs == {name: name for name in SUMMARY.outputs}


def test_provenance_points_at_what_integer_readers_see() -> None:
    assignment, made = quantised("a8w8")
    images = {entry.old: entry.new for entry in made.provenance}
    seen = set(assignment.parameters.tensors) - set(SUMMARY.outputs) - {"c2"}
    assert {name: images[name] for name in seen} == {name: f"{name}/dequantized" for name in seen}
    assert images["c2"] == "c2"  # between Conv and Sigmoid of one kernel neither
    assert images["c1"] == "c1"  # between Conv and Clip of one group nothing is quantised


def test_weights_are_int8_and_biases_int32_on_their_scales() -> None:
    assignment, made = quantised("a8w8")
    stored, original = initializers(made.model), constants()
    values = all_values(made.model, FEEDS)
    for group, bias in (("node_c1", "b1"), ("node_c2", "b2"), ("node_y", "b4")):
        entry = assignment.parameters.weights[group]
        assert stored[f"{entry.initializer}/quantized"].dtype == np.int8
        assert stored[f"{bias}/quantized"].dtype == np.int32
        shape = [1] * original[entry.initializer].ndim
        shape[entry.axis] = -1
        steps = np.array(entry.scales).reshape(shape)
        error = np.abs(values[f"{entry.initializer}/dequantized"] - original[entry.initializer])
        assert np.all(error <= steps * 0.5001)
        assert np.abs(values[f"{bias}/dequantized"] - original[bias]).max() < 1e-3
    assert not {"w1", "b1", "w2", "b2", "w3", "w4", "b4"} & stored.keys()


FORMATS: list[dict[str, Any]] = [
    {"bits": bits, "granularity": granularity, "group_size": 3, "symmetric": symmetric}
    for bits in (4, 8, 16)
    for granularity in ("per_tensor", "per_channel", "per_group")
    for symmetric in (True, False)
    if (bits, granularity) != (16, "per_group")
]


@pytest.mark.parametrize("held", FORMATS, ids=lambda held: "-".join(map(str, held.values())))
def test_weights_of_every_format_are_stored_in_their_type_and_are_what_kernels_multiply(held: dict[str, Any]) -> None:
    """Blocks of 3 of 4 or 8 input channels: the last one is short."""
    request = parse_request({"lane": "a16w8", "weights": held})
    subject = Subject(summary=SUMMARY, graph_digest="", facts=FACTS, statistics=STATISTICS)
    parameters = assign(subject, request, []).parameters
    made = calibrated_model(MODEL, SUMMARY, FACTS, parameters).model
    onnx.checker.check_model(made, full_check=True)
    stored = {tensor.name: tensor for tensor in made.graph.initializer}
    runs = [session(made, level).run(None, FEEDS) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")]
    for first, second in zip(*runs, strict=True):
        assert sqnr(first, second) > 45
    values, blocked = all_values(made, FEEDS), 0
    for entry in parameters.weights.values():
        codes = stored[f"{entry.initializer}/quantized"]
        assert onnx.TensorProto.DataType.Name(codes.data_type) == f"INT{held['bits']}"
        assert len(codes.raw_data) == -(-np.prod(codes.dims) * held["bits"] // 8)
        (node,) = (node for node in made.graph.node if node.input and node.input[0] == codes.name)
        assert len(node.input) == (2 if held["symmetric"] else 3)
        if len(node.input) == 3:
            assert stored[node.input[2]].data_type == codes.data_type
        blocked += any(item.name == "block_size" and item.i == 3 for item in node.attribute)
        original = constants()[entry.initializer]
        effective = effective_weights(encode_weights(original, entry), entry)
        scales = np.array(entry.scales).reshape([-1 if axis == entry.axis else 1 for axis in range(original.ndim)])
        np.testing.assert_allclose(values[f"{entry.initializer}/dequantized"], effective * scales, rtol=1e-6)
    assert blocked == (3 if held["granularity"] == "per_group" else 0)  # the first layer reads 3 channels: one group


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_float16_rounding_survives_optimisation(level: str) -> None:
    text = "t (float[1,64] x) => (float[1,64] y) { s = Sigmoid(x) m = Mul(s, k) y = Neg(m) }"
    feeds = {"x": np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 64)}
    factor = np.array(1.2345678, np.float32)
    _, model, made = small(text, {"k": factor}, feeds, "fp16")
    (result,) = session(made.model, level).run(None, feeds)
    (plain,) = session(model).run(None, feeds)
    sigmoid = all_values(model, feeds)["s"]
    product = sigmoid.astype(np.float16).astype(np.float32) * factor
    np.testing.assert_array_equal(result, -(product.astype(np.float16).astype(np.float32)))
    assert not np.array_equal(result, plain)
    assert not np.array_equal(result, -(sigmoid * factor).astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("lane", LANES)
def test_optimised_sessions_agree_with_plain_ones(lane: str) -> None:
    """onnxruntime may fuse QDQ pairs into integer kernels; then single steps may differ, never more."""
    _, made = quantised(lane)
    plain = session(made.model).run(None, FEEDS)
    fused = session(made.model, "ORT_ENABLE_ALL").run(None, FEEDS)
    for left, right in zip(plain, fused, strict=True):
        assert sqnr(left, right) > 25


def test_an_integer_group_quantises_what_a_float_group_makes() -> None:
    _, made = quantised("fp16_a8w8")
    values = all_values(made.model, FEEDS)
    for name in ("p", "j", "f"):  # made in float16, read by Conv and Gemm
        np.testing.assert_array_equal(values[f"{name}/rounded"], values[name].astype(np.float16).astype(np.float32))
        assert f"{name}/quantized" in values
    reads = {node.name: list(node.input) for node in made.model.graph.node}
    assert reads["node_c2"][0] == "p/dequantized"
    assert "p/rounded" in reads["node_j"]  # the concat computes in float16
    assert reads["node_th"] == ["c3"]  # the accumulator leaves unrounded


def test_a_fake_quantised_output_keeps_its_name_and_its_maker() -> None:
    assignment, made = quantised("a8w8")
    values = all_values(made.model, FEEDS)
    np.testing.assert_array_equal(values["z"], values["z/dequantized"])
    np.testing.assert_array_equal(values["z"], rounded(values["z/float"], assignment.parameters.tensors["z"]))
    makers = {name: node.name for node in made.model.graph.node for name in node.output}
    assert makers["z/float"] == "node_z"
    assert makers["y"] == "node_y"  # the Gemm at the tail is an accumulator: nothing behind it


def test_an_int16_override_is_emitted_as_int16() -> None:
    _, made = quantised("a8w8", ("node_th",), "int16")
    values = all_values(made.model, FEEDS)
    dtypes = {name: values[f"{name}/quantized"].dtype.name for name in ("x", "r1", "c3", "th", "g")}
    assert dtypes == {"x": "uint8", "r1": "uint8", "c3": "int16", "th": "int16", "g": "uint8"}


def test_names_never_collide() -> None:
    """The graph already uses every name that would be given."""
    text = """t (float[1,4] x) => (float[1,4] y) {
      x_q = Relu(x)
      x_d = Neg(x_q)
      y = Exp(x_d)
    }"""
    model, _ = parsed(text, {})
    taken = {"x_q": "x/quantized", "x_d": "x/dequantized"}
    for node in model.graph.node:
        for names in (node.input, node.output):
            for slot, name in enumerate(names):
                names[slot] = taken.get(name, name)
        node.name = {"node_y": "x/scale", "node_x_q": "x/QuantizeLinear"}.get(node.name, node.name)
    del model.graph.value_info[:]
    model = onnx.shape_inference.infer_shapes(model)
    summary = summarise(model, ())
    feeds = {"x": np.array([[-1, 0.3, 0.7, 2]], np.float32)}
    facts = ModelFacts(initializers={}, attributes={})
    subject = Subject(summary=summary, graph_digest="", facts=facts, statistics=observed(model, summary, [feeds]))
    made = calibrated_model(model, summary, facts, assign(subject, parse_request({"lane": "a8w8"}), []).parameters)
    onnx.checker.check_model(made.model, full_check=True)
    old, new = all_values(model, feeds), all_values(made.model, feeds)
    for entry in made.provenance:
        assert sqnr(old[entry.old], new[entry.new]) > 30
    assert {entry.old: entry.new for entry in made.provenance}["x"] == "x/dequantized_1"


def test_grouped_transposed_convolution_and_shared_bias() -> None:
    generator = np.random.default_rng(2)
    text = """t (float[1,4,5,5] x, float[2,6] v) => (float[1,6,5,5] y, float[2,3] z) {
      c = ConvTranspose<group = 2>(x, w, b) y = Relu(c)
      m = MatMul(v, k) a = Add(m, one) z = Exp(a)
    }"""
    values = {
        "w": generator.normal(size=(4, 3, 1, 1)).astype(np.float32), "b": generator.normal(size=6).astype(np.float32),
        "k": generator.normal(size=(6, 3)).astype(np.float32), "one": np.array([0.75], np.float32),
    }  # fmt: skip
    feeds = {
        "x": generator.normal(size=(1, 4, 5, 5)).astype(np.float32),
        "v": generator.normal(size=(2, 6)).astype(np.float32),
    }
    _, model, made = small(text, values, feeds, "a8w8")
    old, new = all_values(model, feeds), all_values(made.model, feeds)
    assert sqnr(old["y"], new["y"]) > 35
    assert sqnr(old["a"], new["a"]) > 35  # inner: Exp shares its kernel
    assert sqnr(old["z"], new["z"]) > 35


def test_the_model_that_enters_is_untouched_and_bytes_repeat() -> None:
    before = MODEL.SerializeToString(deterministic=True)
    first, second = (quantised("a8w8")[1].model.SerializeToString(deterministic=True) for _ in range(2))
    assert MODEL.SerializeToString(deterministic=True) == before
    assert first == second


def test_an_older_operator_set_is_refused() -> None:
    assignment, _ = quantised("a8w8")
    old = onnx.ModelProto()
    old.CopyFrom(MODEL)
    old.opset_import[0].version = 17
    with pytest.raises(StageError) as caught:
        calibrated_model(old, SUMMARY, FACTS, assignment.parameters)
    assert "17" in caught.value.faults[0].what


@pytest.mark.parametrize("lane", LANES)
def test_an_output_that_others_read_is_seen_alike_by_all(lane: str) -> None:
    text = "t (float[1,16] x) => (float[1,16] r, float[1,16] y) { r = Relu(x) y = Exp(r) }"
    feeds = {"x": np.linspace(-1, 2, 16, dtype=np.float32).reshape(1, 16)}
    _, model, made = small(text, {}, feeds, lane)
    onnx.checker.check_model(made.model, full_check=True)
    old, new = all_values(model, feeds), all_values(made.model, feeds)
    reads = {node.name: list(node.input) for node in made.model.graph.node}
    np.testing.assert_array_equal(new[reads["node_y"][0]], new["r"])
    assert sqnr(old["r"], new["r"]) > 40
    assert not np.array_equal(old["r"], new["r"])


def test_a_type_that_was_decided_and_not_emitted_is_noticed() -> None:
    assignment, made = quantised("a8w8")
    other, _ = quantised("a16w16")
    codes = {name: f"{name}/quantized" for name in other.parameters.tensors}
    stored = {name: f"{entry.initializer}/quantized" for name, entry in assignment.parameters.weights.items()}
    with pytest.raises(StageError) as caught:
        _check_types(made.model, (codes, stored), other.parameters)
    weights = {entry.initializer for entry in other.parameters.weights.values()}
    assert {fault.where for fault in caught.value.faults} == {*other.parameters.tensors, *weights}
