"""The runtime contract of a context binary: edges, numbers of the binary, the application's quantisers, refusals."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from npubake.errors import StageError
from npubake.layout.edges import from_edge, to_edge
from npubake.toolchains import pictures
from npubake.toolchains.qualcomm.release.contract import build_contract, contract_bytes, dense_stride

WRAPPER = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
agraph (uint8[1,4,6,3] image, uint16[1,5] state) => (uint8[1,4,8] boxes, float[1,2] kind) {
  boxes, kind = com.microsoft.EPContext <embed_mode = 0> (image, state)
}"""
FILES = {"wrapper": b"wrapper", "binary": b"binary"}
PRESET = {
    "name": "p", "version": 1, "decode": "pillow", "channels": "rgb", "resize": None, "crop": None,
    "scale": {"divide_by": 255}, "mean": None, "std": None, "layout": "NCHW", "input_dtype": "uint8",
}  # fmt: skip
PARAMS: dict[str, Any] = {
    "platform": {"name": "qcs9075", "soc_model": "77", "march": "v73", "vtcm_bytes": 8388608},
    "sdk": {"bsp": "IQ-9075 1.2"},
    "preset": PRESET,
}
METADATA: dict[str, Any] = {
    "build_id": "v2.51.0.1",
    "soc_model": "77",
    "tools": {"onnxruntime_qnn": "2.7.0", "qnn": "2.51.0", "onnxruntime": "1.32.0"},
    "graphs": [
        {
            "name": "g",
            "inputs": [
                {"name": "state", "dtype": "uint16", "shape": [1, 5], "scale": 0.5, "offset": -32768},
                {"name": "image", "dtype": "uint8", "shape": [1, 4, 6, 3], "scale": 1 / 255, "offset": 0},
            ],
            "outputs": [
                {"name": "boxes", "dtype": "uint8", "shape": [1, 4, 8], "scale": 0.25, "offset": -3},
                {"name": "kind", "dtype": "float32", "shape": [1, 2], "scale": None, "offset": None},
            ],
        }
    ],
}
PIXELS = {"type": "rgb", "range": "full", "channels": "rgb", "divide_by": 255, "mean": None, "std": None,
          "tensors": ["image"], "height": 4, "width": 6, "layout": "NCHW"}  # fmt: skip
RECORD: dict[str, Any] = {
    "lane": "a8w8",
    "io": "quantized",
    "runtime_inputs": {"image": PIXELS},
    "inputs": {
        "image": {"model_input": "image", "kind": "rgb"},
        "state": {"model_input": "state", "kind": "tensor"},
    },
    "outputs": {"boxes": {"model_output": "boxes"}, "kind": {"model_output": "kind"}},
}


def wrapper() -> onnx.ModelProto:
    return onnx.parser.parse_model(WRAPPER)


def built(**changes: Any) -> dict[str, Any]:
    given = {"metadata": METADATA, "record": RECORD, "params": PARAMS, **changes}
    return build_contract(wrapper(), FILES, given["metadata"], given["record"], given["params"])


def test_edges_are_the_wrappers_and_numbers_the_binarys() -> None:
    contract = built()
    image, state = contract["inputs"]
    assert (image["name"], image["dtype"], image["valid_shape"]) == ("image", "uint8", [1, 4, 6, 3])
    assert image["stride"] == list(np.zeros((1, 4, 6, 3), np.uint8).strides)
    assert image["aligned_byte_size"] == 72
    assert (image["kind"], image["model_input"]) == ("rgb", "image")
    assert image["scale"] == [float(np.float32(1 / 255))]
    assert state["stride"] == list(np.zeros((1, 5), np.uint16).strides)
    assert (state["scale"], state["zero_point"]) == ([0.5], 32768)
    boxes, kind = contract["outputs"]
    assert (boxes["scale"], boxes["zero_point"]) == ([0.25], 3)
    assert (kind["dtype"], kind["scale"], kind["zero_point"]) == ("float32", None, None)
    assert not contract["exact"]


@pytest.mark.parametrize(("shape", "size"), [((), 4), ((7,), 2), ((2, 3, 4), 8), ((1, 0, 5), 4)])
def test_dense_strides_are_numpys(shape: tuple[int, ...], size: int) -> None:
    array = np.empty(shape, f"V{size}")
    assert dense_stride(shape, size) == list(array.strides) or array.size == 0


def test_the_application_quantises_what_is_no_picture_and_dequantises_the_outputs() -> None:
    removed = {(entry["side"], entry["tensor"]): entry for entry in built()["removed"]}
    assert set(removed) == {("inputs", "state"), ("outputs", "boxes")}
    real = np.array([[-1.0, -0.24, 0.26, 0.75, 40000.0]], np.float32)
    codes = to_edge(real, [removed["inputs", "state"]])
    # code = real / 0.5 + 32768, half to even, clamped to uint16: by hand
    assert codes.dtype == np.uint16
    assert codes.tolist() == [[32766, 32768, 32769, 32770, 65535]]
    boxes = from_edge(np.full((1, 4, 8), 11, np.uint8), [removed["outputs", "boxes"]])
    assert boxes.dtype == np.float32
    assert np.all(boxes == 2.0)  # 0.25 * (11 - 3)


def test_a_picture_goes_through_the_preset_into_the_baked_input() -> None:
    contract = built()
    assert contract["preprocessing"]["inputs"] == {"image": {"layout": "NCHW", "linear_step": "model"}}
    assert pictures.model_inputs(contract) == {"image": ("uint8", [4, 6, 3]), "state": ("float32", [1, 5])}
    assert built(params={**PARAMS, "preset": None})["preprocessing"] is None


def test_it_names_the_hardware_the_build_the_files_and_the_runtime() -> None:
    contract = built()
    assert contract["htp"] == {
        "soc_models": [77], "arch": ["v73"], "soc_model": "77", "vtcm_bytes": 8388608, "graph": "g"
    }  # fmt: skip
    assert contract["build"]["qnn_build_id"] == "v2.51.0.1"
    assert contract["build"]["onnxruntime"] == "1.32.0"
    assert contract["platform"]["bsp"] == "IQ-9075 1.2"
    assert contract["files"]["binary"] == {
        "name": "model_ctx_qnn.bin", "sha256": hashlib.sha256(b"binary").hexdigest(), "bytes": 6
    }  # fmt: skip
    assert [entry["file"] for entry in contract["runtime"]["libraries"]] == [
        "libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV73Stub.so", "libQnnHtpV73Skel.so"
    ]  # fmt: skip
    assert contract["runtime"]["qnn_version"] == "2.51.0"
    assert set(contract["runtime"]["environment"]) == {"LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH"}


def test_a_binary_for_two_socs_names_the_runtime_of_both() -> None:
    platform = {**PARAMS["platform"], "name": "qcs9075+qcs8275", "soc_model": "77,82", "march": "v73,v75"}
    contract = built(params={**PARAMS, "platform": platform})
    assert contract["htp"]["soc_models"] == [77, 82]
    files = {entry["file"] for entry in contract["runtime"]["libraries"]}
    assert {"libQnnHtpV73Skel.so", "libQnnHtpV75Skel.so", "libQnnHtpV73Stub.so", "libQnnHtpV75Stub.so"} < files


def test_the_licence_is_that_of_what_made_the_binary() -> None:
    assert "onnxruntime-qnn" in built()["licence"]
    sdk = {"qairt_sdk": "2.39.0.250926", "converter": "qairt", "qnn": "2.39.0.250926"}
    by_sdk = built(metadata={**METADATA, "tools": sdk})["licence"]
    assert "QAIRT SDK" in by_sdk
    assert "onnxruntime-qnn" not in by_sdk


def test_the_checklist_is_the_guides() -> None:
    items = built()["checklist"]
    assert len(items) == 8  # of the guide
    assert [entry["where"] for entry in items if entry["by"] == "gate"] == [
        "baseline", "converted", "compiled", "product"
    ]  # fmt: skip
    assert sum(entry["by"] == "board" for entry in items) == 2


def test_edges_that_the_binary_or_the_record_do_not_know_are_all_named() -> None:
    graph = METADATA["graphs"][0]
    metadata = {**METADATA, "graphs": [{**graph, "inputs": graph["inputs"][:1]}]}
    record = {**RECORD, "inputs": {"image": RECORD["inputs"]["image"]}}
    with pytest.raises(StageError) as caught:
        built(metadata=metadata, record=record)
    assert [(fault.where, "binary" in fault.what) for fault in caught.value.faults] == [
        ("inputs: image", True),
        ("inputs: state", False),
    ]


def test_it_is_canonical_json() -> None:
    data = contract_bytes(built())
    assert json.loads(data) == json.loads(json.dumps(built()))
    assert data == contract_bytes(json.loads(data))
