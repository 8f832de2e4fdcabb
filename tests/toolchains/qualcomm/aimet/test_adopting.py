"""AIMET's model with the edges that the binary gets: the same numbers, integers outside, the record in adapt's form."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from npubake.graph.inference import infer_shapes
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest
from npubake.toolchains.qualcomm.aimet.adopting import adopt
from npubake.toolchains.qualcomm.aimet.qdq import renamed
from tests.graph.writing import Array, normal
from tests.toolchains.qualcomm.aimet import models

TENSORS = {
    "x": {"dtype": "uint8", "scale": float(np.float32(0.02)), "zero_point": 128, "by": "parameters"},
    "y": {"dtype": "uint8", "scale": float(np.float32(1 / 255)), "zero_point": 0, "by": "parameters"},
}
RECORD: dict[str, Any] = {
    "version": 1,
    "quantiser": {"name": "aimet"},
    "provenance": [],
    "tensors": TENSORS,
    "weights": {},
    "coverage": {"activations": 4, "quantized": 4, "float": []},
}


def quantised() -> onnx.ModelProto:
    return infer_shapes(renamed(models.floating(), models.quantised()).model)


def output(model: onnx.ModelProto, value: Array) -> Array:
    """Of ``x``, by ONNX's reference evaluator."""
    found: list[Any] = list(ReferenceEvaluator(model).run(None, {"x": value}))
    return np.asarray(found[0])


def test_integer_edges_give_the_codes_of_the_same_numbers() -> None:
    made = adopt(quantised(), RECORD, AdaptRequest(lane="a8w8", io="quantized"))
    values = normal(1, 4, 2, 2)
    wanted = output(made.model, values)
    codes = np.clip(np.rint(values / np.float32(0.02)) + 128, 0, 255).astype(np.uint8)
    found = output(made.compilable, codes)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found * np.float32(1 / 255), wanted, rtol=0, atol=1e-6)


def test_the_record_has_adapts_form() -> None:
    made = adopt(quantised(), RECORD, AdaptRequest(lane="a8w8", io="quantized"))
    binding = {"version", "lane", "io", "provenance", "runtime_inputs", "inputs", "outputs", "tensors", "coverage"}
    assert binding | {"weights", "forms", "warnings"} <= made.record.keys()
    assert made.record["inputs"]["x"]["zero_point"] == 128
    assert made.record["outputs"]["y"]["dtype"] == "uint8"
    assert made.record["coverage"] == RECORD["coverage"]


def test_float_edges_leave_the_model_as_it_is() -> None:
    made = adopt(quantised(), RECORD, AdaptRequest(lane="a8w8", io="float"))
    kinds = [
        entry.type.tensor_type.elem_type for entry in (*made.compilable.graph.input, *made.compilable.graph.output)
    ]
    assert kinds == [TensorProto.FLOAT, TensorProto.FLOAT]
    assert made.record["inputs"]["x"]["scale"] is None
