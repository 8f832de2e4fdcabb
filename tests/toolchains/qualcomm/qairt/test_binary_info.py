"""The JSON of qnn-context-binary-utility in the form of public dumps; names of the binary; the wrapper around it."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.htp.metadata import Metadata
from npubake.toolchains.qualcomm.qairt.binary_info import metadata_of
from npubake.toolchains.qualcomm.qairt.naming import binary_names, in_model_names, near_scales
from npubake.toolchains.qualcomm.qairt.wrapper import wrapper_model


def tensor(name: str, kind: str, shape: list[int], grid: tuple[float, int] | None = None) -> dict[str, Any]:
    quantised = {} if grid is None else {"quantizeParams": {"scaleOffset": {"scale": grid[0], "offset": grid[1]}}}
    return {"info": {"id": 3, "name": name, "dimensions": shape, "dataType": f"QNN_DATATYPE_{kind}", **quantised}}


def dump() -> dict[str, Any]:
    graph = {
        "graphName": "model",
        "graphInputs": [tensor("input_1", "UFIXED_POINT_8", [1, 3, 8, 8], (0.00392156862745098, 0))],
        "graphOutputs": [tensor("_495", "UFIXED_POINT_16", [1, 10], (0.25, -32768)), tensor("ids", "INT_32", [1])],
    }
    return {
        "info": {
            "buildId": "v2.39.0.250926",
            "coreApiVersion": {"major": 2, "minor": 29, "patch": 0},
            "contextBlobVersion": "3.3.4",
            "contextBlobSize": 4096,
            "graphs": [{"version": 3, "info": graph}],
            "contextMetadata": {"info": {"dspArch": 73, "socModel": 77}},
        }
    }


def read() -> Metadata:
    return metadata_of(dump(), {"qnn": "2.39.0"})


RECORD = {
    "inputs": {"input.1": {"scale": 0.00392156862745098}},
    "outputs": {"495": {"scale": 0.25}, "ids": {"scale": None}},
}


def test_a_dump_is_read() -> None:
    (part,) = read().parts
    assert (part.soc_model, part.arch, part.build_id) == (77, "v73", "v2.39.0.250926")
    assert (part.core_api, part.blob_version, part.backend_api) == ("2.29.0", "3.3.4", "")
    (graph,) = part.graphs
    found = [(one.name, one.dtype, one.offset) for one in graph.outputs]
    assert found == [("_495", "uint16", -32768), ("ids", "int32", None)]
    (source,) = graph.inputs
    assert (source.shape, source.qnn_dtype) == ((1, 3, 8, 8), "UFIXED_POINT_8")  # as QnnTypes.h has it


@pytest.mark.parametrize("path", [("info",), ("info", "buildId"), ("info", "graphs"), ("info", "contextMetadata")])
def test_a_dump_of_another_form_is_refused(path: tuple[str, ...]) -> None:
    content = dump()
    inside = content
    for step in path[:-1]:
        inside = inside[step]
    del inside[path[-1]]
    with pytest.raises(StageError) as refused:
        metadata_of(content, {})
    assert "qnn-context-binary-utility" in refused.value.faults[0].where


def test_a_type_that_is_not_known_and_a_fixed_point_without_a_grid() -> None:
    for kind, what in (("BFLOAT_16", "no data type"), ("UFIXED_POINT_8", "scaleOffset")):
        content = dump()
        content["info"]["graphs"][0]["info"]["graphOutputs"] = [tensor("y", kind, [1])]
        with pytest.raises(StageError) as refused:
            metadata_of(content, {})
        assert what in refused.value.faults[0].what


def test_names_are_found_again() -> None:
    metadata = read()
    names = binary_names(RECORD, metadata.parts[0].graphs[0])
    assert names == {"input.1": "input_1", "495": "_495", "ids": "ids"}
    graph = in_model_names(metadata, names).parts[0].graphs[0]
    assert [one.name for one in (*graph.inputs, *graph.outputs)] == ["input.1", "495", "ids"]


def test_a_name_that_fits_none_or_two_is_refused() -> None:
    content = dump()
    content["info"]["graphs"][0]["info"]["graphInputs"].append(tensor("input:1", "FLOAT_32", [1]))
    graph = metadata_of(content, {}).parts[0].graphs[0]
    with pytest.raises(StageError) as refused:
        binary_names({"inputs": RECORD["inputs"], "outputs": {"other": {}}}, graph)
    assert [fault.where for fault in refused.value.faults] == ["input.1", "other"]


@pytest.mark.parametrize(("factor", "taken"), [(1 + 1e-7, True), (1 + 1e-5, False)])
def test_a_scale_of_other_last_bits_is_the_planned_one(factor: float, taken: bool) -> None:
    record = {"inputs": {}, "outputs": {"_495": {"scale": 0.25 * factor}}}
    found = near_scales(read(), record).parts[0].graphs[0].outputs[0].scale
    assert (found == 0.25 * factor) is taken


def test_the_wrapper_is_one_node_that_names_the_binary() -> None:
    model = wrapper_model(read(), "model_ctx_qnn.bin")
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    stated = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    assert (stated["ep_cache_context"], stated["embed_mode"]) == (b"model_ctx_qnn.bin", 0)
    assert list(node.input) == ["input_1"]
    assert [value.type.tensor_type.elem_type for value in model.graph.output] == [
        onnx.TensorProto.UINT16,
        onnx.TensorProto.INT32,
    ]
