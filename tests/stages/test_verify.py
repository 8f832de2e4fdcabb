"""verify: bit-equal on real digits with every kind of edge; a planted fault fails and names the stage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npubake.calibration.archive import ArchiveReader
from npubake.errors import GateError
from npubake.graph.execution import run_model
from npubake.graph.model_file import load_model
from npubake.toolchains.recorded import RECORDED, difference
from npubake.toolchains.reference.verification import FLOAT_COSINE, Comparison, judge
from tests.toolchains.digits import GRAY, J6E, J6P, calibrated, compiled, quantised, verified, with_softmax

EDGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, J6P),
    ({"tail": "int32", "runtime_input": GRAY}, J6E),
    ({"tail": "int32", "remove": {"inputs": ["Quantize"], "outputs": ["Dequantize"]}}, J6E),
]


@pytest.mark.parametrize(("params", "platform"), EDGES)
@pytest.mark.parametrize("against", ["quantize.model", "quantize.removed"])
def test_equal_whatever_the_edges(tmp_path: Path, params: Any, platform: Any, against: str) -> None:
    """The deployable equals the quantised model, compared with or without its edge nodes."""
    road = compiled(quantised(calibrated().branch(tmp_path), params), {"platform": platform})
    record = verified(road, {"count": 3}, against).record("verify.record")
    assert record["exact"] is True
    assert [(entry["equal"], entry["max_difference"]) for entry in record["comparisons"]] == [(True, 0.0)]
    assert len(record["runs"]) == 3
    assert len({run["outputs"]["logits"] for run in record["runs"]}) == 3


def test_recorded_arrays_are_what_the_package_computes(tmp_path: Path) -> None:
    road = compiled(quantised(calibrated().branch(tmp_path), {"runtime_input": GRAY}), {"platform": J6P})
    road = verified(road, {"count": 2})
    model = load_model(road.files["quantize.removed"])
    with ArchiveReader(road.files["verify.outputs"]) as archive:
        assert archive.json(RECORDED)["runs"] == road.record("verify.record")["runs"]
        for index in range(2):
            image = archive.array(f"{index:05d}/inputs/image.npy")
            want = run_model(model, {"image": image})["logits"]
            np.testing.assert_array_equal(archive.array(f"{index:05d}/outputs/logits.npy"), want)


def test_planted_fault_fails_and_says_where(tmp_path: Path) -> None:
    """One bias of the deployable's model is off by one step."""
    road = quantised(calibrated().branch(tmp_path), {"tail": "int32", "runtime_input": GRAY})
    model = load_model(road.files["quantize.removed"])
    bias = next(
        tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.INT32 and tensor.dims
    )
    values = numpy_helper.to_array(bias).copy()
    values.flat[0] += 5000
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))
    road.files["quantize.removed"].write_bytes(model.SerializeToString())
    road = compiled(road, {"platform": J6E})
    with pytest.raises(GateError) as caught:
        verified(road, {"count": 2})
    (fault,) = caught.value.faults
    assert fault.where == "quantized -> deployable: logits"
    assert "compile" in fault.hint


def test_bytes_repeat(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        road = compiled(quantised(calibrated().branch(tmp_path / name), {"runtime_input": GRAY}), {"platform": J6P})
        road = verified(road, {})
        made.append([road.files[port].read_bytes() for port in ("verify.record", "verify.outputs")])
    assert made[0] == made[1]
    assert len(json.loads(made[0][0])["runs"]) == 4


@pytest.mark.parametrize(("outputs", "dtype"), [(["Softmax"], "float32"), (["Softmax", "Dequantize"], "uint8")])
def test_softmax_at_the_tail_becomes_the_applications_part(tmp_path: Path, outputs: list[str], dtype: str) -> None:
    """The integer Softmax goes; the bare model is equal bit by bit, the whole one within the Softmax's own steps."""
    road = quantised(with_softmax(), {"runtime_input": GRAY, "remove": {"outputs": outputs}})
    road = compiled(road.branch(tmp_path), {"platform": J6P})
    (entry,) = road.record("compile.contract")["outputs"]
    assert entry["dtype"] == dtype
    (bare,) = verified(road, {"count": 4}, "quantize.removed").record("verify.record")["comparisons"]
    assert (bare["bitwise"], bare["equal"]) == (True, True)
    (whole,) = verified(road, {"count": 4}).record("verify.record")["comparisons"]
    assert whole["bitwise"] is False
    assert whole["max_difference"] < 0.02


def test_judgement() -> None:
    good = Comparison(output="a", bitwise=True, tolerance=0.9999, equal=True, max_difference=0.0, min_cosine=1.0)
    near = Comparison(
        output="b", bitwise=False, tolerance=0.9999, equal=False, max_difference=1e-3, min_cosine=FLOAT_COSINE
    )
    far = Comparison(output="c", bitwise=False, tolerance=0.9999, equal=False, max_difference=0.5, min_cosine=0.99)
    judge([good])
    judge([good, near])
    with pytest.raises(GateError):
        judge([replace(near, bitwise=True)])
    with pytest.raises(GateError) as caught:
        judge([near, far])
    assert len(caught.value.faults) == 1


def test_difference() -> None:
    one = np.array([1, 2, 3], dtype=np.int32)
    assert difference(one, one)[:2] == (True, 0.0)
    assert difference(one, one + np.int32(1))[:2] == (False, 1.0)
    assert not difference(one, one.astype(np.int64))[0]
    assert difference(one, one[:2])[2] == 0.0
