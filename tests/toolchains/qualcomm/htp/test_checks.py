"""What is held against an artifact, on facts that are wrong in one way each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper, parser

from npubake.errors import RecipeError
from npubake.toolchains.qualcomm.facts import HtpPlatform
from npubake.toolchains.qualcomm.htp import checks
from npubake.toolchains.qualcomm.htp.metadata import Graph, Metadata, Part, Tensor
from npubake.toolchains.qualcomm.htp.operators import Operators
from tests.toolchains.qualcomm.compiler_words import small_model

SOURCE = Tensor(name="x", dtype="uint8", qnn_dtype="UFIXED_POINT_8", shape=(1, 3), scale=0.5, offset=-7)
RESULT = Tensor(name="y", dtype="float32", qnn_dtype="FLOAT_32", shape=(1, 2), scale=None, offset=None)
GRAPH = Graph(name="g", inputs=(SOURCE,), outputs=(RESULT,))
PART = Part(
    soc_model=77,
    arch="v73",
    build_id="v2.51.0",
    core_api="2.40.0",
    backend_api="5.51.0",
    blob_version="4.0.6",
    blob_bytes=9,
    graphs=(GRAPH,),
)
OTHER = replace(PART, soc_model=82, arch="v75")
PLATFORM = HtpPlatform(name="p", soc_models=(77,), arch=("v73",), vtcm_bytes=8 << 20, precisions=(), lanes=())
BOTH = replace(PLATFORM, soc_models=(77, 82), arch=("v73", "v75"))
RECORD: dict[str, Any] = {
    "inputs": {"x": {"dtype": "uint8", "shape": [1, 3], "scale": 0.5, "zero_point": 7}},
    "outputs": {"y": {"dtype": "float32", "shape": [1, 2], "scale": None, "zero_point": None}},
}


def wrapper(*nodes: str) -> onnx.ModelProto:
    text = f"""<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>
    artifact (uint8[1, 3] x) => (float[1, 2] y) {{ {" ".join(nodes)} }}"""
    model: onnx.ModelProto = parser.parse_model(text)
    return model


def test_that_one_compiled_node_is_well() -> None:
    assert checks.wrapper_faults(wrapper("y = com.microsoft.EPContext(x)"), Operators.of(small_model()), ()) == []


def test_that_two_compiled_graphs_need_a_reason() -> None:
    two = wrapper("m = com.microsoft.EPContext(x)", "y = com.microsoft.EPContext(m)")
    operators = Operators.of(small_model())
    (fault,) = checks.wrapper_faults(two, operators, ())
    assert "2 compiled graphs" in fault.what
    assert checks.wrapper_faults(two, operators, ("curve",)) == []


def test_that_only_named_nodes_may_be_left_with_their_quantisers() -> None:
    split = wrapper(
        "m = com.microsoft.EPContext(x)",
        '["stem_out/dequantized"] d = DequantizeLinear(m, x)',
        "[curve] e = Sinh(d)",
        "y = com.microsoft.EPContext(e)",
    )
    operators = Operators.of(small_model("Sinh"))
    assert checks.wrapper_faults(split, operators, ("curve",)) == []
    assert checks.left_on_cpu(split, operators) == ["curve"]
    faults = checks.wrapper_faults(split, operators, ("stem",))
    assert ["curve (Sinh)" in fault.what for fault in faults] == [True]


def test_that_an_unknown_name_says_which_was_meant() -> None:
    with pytest.raises(RecipeError) as refused:
        checks.refuse_unknown_nodes(["curv", "stem"], Operators.of(small_model()))
    (fault,) = refused.value.faults
    assert "'curve'" in fault.hint
    assert fault.path.endswith("cpu_nodes")


@pytest.mark.parametrize(
    ("parts", "platform", "words"),
    [
        ((PART,), PLATFORM, []),
        ((PART, OTHER), BOTH, []),
        ((OTHER,), PLATFORM, ["soc_model 82, not 77", "v75, not v73"]),
        ((PART,), BOTH, ["soc_model 77, not 77,82"]),
        ((replace(PART, arch="v68"),), PLATFORM, ["v68, not v73"]),
        ((replace(PART, build_id=""),), PLATFORM, ["names no build"]),
        ((PART, replace(OTHER, graphs=(replace(GRAPH, outputs=()),))), BOTH, ["soc_model 82"]),
        ((PART, replace(OTHER, build_id="v2.50.0")), BOTH, ["soc_model 82"]),
    ],
)
def test_that_the_binary_is_for_the_platform(parts: tuple[Part, ...], platform: HtpPlatform, words: list[str]) -> None:
    faults = checks.metadata_faults(Metadata(parts=parts), platform)
    assert len(faults) == len(words)
    assert all(word in fault.what for word, fault in zip(words, faults, strict=True))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"dtype": "uint16"}, "dtype"),
        ({"shape": (1, 4)}, "shape"),
        ({"scale": 0.25}, "scale"),
        ({"offset": 7}, "zero point"),
        ({"scale": None}, "scale"),
    ],
)
def test_that_an_edge_is_as_planned(change: dict[str, Any], fact: str) -> None:
    assert checks.edge_faults(GRAPH, RECORD) == []
    (fault,) = checks.edge_faults(replace(GRAPH, inputs=(replace(SOURCE, **change),)), RECORD)
    assert f"input x has {fact}" in fault.what


def test_that_scales_are_compared_as_float32() -> None:
    planned = {**RECORD, "inputs": {"x": {**RECORD["inputs"]["x"], "scale": 0.1}}}
    found = replace(GRAPH, inputs=(replace(SOURCE, scale=0.10000000149011612),))  # 0.1 as float32
    assert checks.edge_faults(found, planned) == []


def test_that_missing_and_unplanned_edges_are_named() -> None:
    renamed = replace(GRAPH, outputs=(replace(RESULT, name="z"),))
    assert [fault.what.split(" is ")[0] for fault in checks.edge_faults(renamed, RECORD)] == ["output y", "output z"]


def test_that_an_edge_on_the_cpu_is_the_wrappers() -> None:
    inner = Metadata(parts=(replace(PART, graphs=(replace(GRAPH, inputs=()),)),))
    edges = checks.application_edges(inner, wrapper("y = com.microsoft.EPContext(x)"), RECORD)
    assert edges.inputs == (replace(SOURCE, qnn_dtype=""),)
    assert edges.outputs == (RESULT,)


def test_that_one_graph_is_asked_for() -> None:
    two = Metadata(parts=(replace(PART, graphs=(GRAPH, GRAPH)),))
    assert checks.graph_faults(Metadata(parts=(PART,)), ()) == []
    assert checks.graph_faults(two, ("curve",)) == []
    assert len(checks.graph_faults(two, ())) == 1
    assert len(checks.graph_faults(Metadata(parts=(replace(PART, graphs=()),)), ("curve",))) == 1


@pytest.mark.parametrize(("dtype", "inputs", "count"), [("INT4", 2, 1), ("INT4", 3, 0), ("INT8", 2, 0)])
def test_that_4_bit_weights_need_a_zero_point(dtype: str, inputs: int, count: int) -> None:
    kind = TensorProto.DataType.Value(dtype)
    constants = [helper.make_tensor(name, kind, [2], [0, 0]) for name in ("codes", "zero")]
    node = helper.make_node("DequantizeLinear", ["codes", "scale", "zero"][:inputs], ["w"], name="w/dequantized")
    model = helper.make_model(helper.make_graph([node], "g", [], [], constants))
    assert len(checks.weights_without_zero_point(model)) == count
