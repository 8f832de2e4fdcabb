"""Two models compared through their records: pairs by origin, integers in real units, the board's input decoded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from npubake.calibration.preprocessing import LinearStep
from npubake.calibration.samples import Example, InputForm, SampleSet, SampleWriter
from npubake.errors import StageError
from npubake.verify.comparison import Comparison, Run, TracedModel, compare_models
from npubake.verify.metrics import EXACT_DB

REFERENCE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,2] x) => (float[1,2,2] y) {
    [square] inner = Mul(x, x)
    [out] y = Add(inner, x)
}
"""
# inner is held as uint8 with scale 0.5 and zero point 10, under another name
CANDIDATE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,2] x) => (float[1,2,2] y)
<float scale = {0.5}, uint8 zero = {10}> {
    [square] renamed = Mul(x, x)
    [q] held = QuantizeLinear(renamed, scale, zero)
    [d] back = DequantizeLinear(held, scale, zero)
    [out] y = Add(back, x)
}
"""


def save(folder: Path, name: str, text: str, record: Any = None) -> TracedModel:
    onnx.save(parser.parse_model(text), folder / f"{name}.onnx")
    if record is None:
        return TracedModel.load(folder / f"{name}.onnx", None)
    (folder / f"{name}.json").write_text(json.dumps(record))
    return TracedModel.load(folder / f"{name}.onnx", folder / f"{name}.json")


def samples_of(
    folder: Path, arrays: Sequence[Any], linear: LinearStep | None = None, shape: Any = (1, 2, 2)
) -> SampleSet:
    forms = {"x": InputForm(shape=shape, dtype="float32", linear=linear)}
    with SampleWriter(folder / "s.npz", forms) as writer:
        for array in arrays:
            writer.add(Example(stored={"x": np.asarray(array)}, geometry={}, sources={}))
        writer.finish({"random": False})
    return SampleSet.open(folder / "s.npz")


def compared(
    reference: TracedModel, candidate: TracedModel, samples: SampleSet, limit: int | None = None
) -> Comparison:
    with samples:
        run = Run(limit=limit, threads=2, progress=lambda _done, _total: None)
        return compare_models(reference, candidate, samples, run)


def scaled(new: str) -> dict[str, Any]:
    entry = {"old": "inner", "new": new, "relation": "scaled", "factor": 0.5, "zero_point": 10}
    return {"provenance": [entry, {"old": "y", "new": "y", "relation": "same"}]}


FIRST = np.array([[[1.0, 0.5], [-3.0, 2.0]]], np.float32)
SECOND = np.array([[[0.1, 0.0], [-1.1, 7.0]]], np.float32)


def test_a_model_equals_itself(tmp_path: Path) -> None:
    model = save(tmp_path, "a", REFERENCE)
    found = compared(model, model, samples_of(tmp_path, [FIRST, SECOND]))
    assert [entry.name for entry in found.outputs] == ["y"]
    assert [entry.name for entry in found.tensors] == ["inner"]
    assert found.outputs[0].figures.cosine == 1.0
    assert found.outputs[0].figures.sqnr_db == EXACT_DB
    assert found.examples == 2


def test_a_quantised_tensor_is_read_in_real_units(tmp_path: Path) -> None:
    reference, candidate = save(tmp_path, "a", REFERENCE), save(tmp_path, "b", CANDIDATE, scaled("held"))
    found = compared(reference, candidate, samples_of(tmp_path, [FIRST, SECOND]))
    inner = np.concatenate([FIRST, SECOND]).astype(np.float64) ** 2
    wanted = np.abs(inner - np.round(inner * 2) / 2).max()  # half to even, as QuantizeLinear rounds
    assert found.tensors[0].name == "inner"
    assert found.tensors[0].figures.max_abs == pytest.approx(wanted, abs=1e-6)
    assert found.tensors[0].worst_example == "example 0"  # 32 dB against 44 dB
    assert found.outputs[0].figures.max_abs == pytest.approx(wanted, abs=1e-6)


def test_a_wrong_record_shows(tmp_path: Path) -> None:
    record = scaled("held")
    record["provenance"][0]["zero_point"] = 11
    found = compared(
        save(tmp_path, "a", REFERENCE), save(tmp_path, "b", CANDIDATE, record), samples_of(tmp_path, [FIRST])
    )
    assert found.tensors[0].figures.max_abs >= 0.25
    assert found.tensors[0].figures.sqnr_db < found.outputs[0].figures.sqnr_db


@pytest.mark.parametrize("relation", ["gone", "split"])
def test_tensors_that_are_gone_or_split_are_not_paired(tmp_path: Path, relation: str) -> None:
    record = {"provenance": [{"old": "inner", "new": "held" if relation == "split" else "", "relation": relation}]}
    found = compared(
        save(tmp_path, "a", REFERENCE), save(tmp_path, "b", CANDIDATE, record), samples_of(tmp_path, [FIRST])
    )
    assert found.tensors == ()
    assert found.unmatched == 1


def test_the_record_says_where_a_renamed_output_went(tmp_path: Path) -> None:
    renamed = CANDIDATE.replace(" y", " answer")
    with pytest.raises(StageError):
        compared(save(tmp_path, "a", REFERENCE), save(tmp_path, "b", renamed), samples_of(tmp_path, [FIRST]))
    record = {"provenance": [{"old": "y", "new": "answer", "relation": "same"}]}
    found = compared(
        save(tmp_path, "a", REFERENCE), save(tmp_path, "c", renamed, record), samples_of(tmp_path, [FIRST])
    )
    assert found.outputs[0].figures.cosine > 0.99


def test_an_integer_output_is_read_by_the_scales_of_its_channels(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]> g (float[1,2,2] x) => (int32[1,2,2] y)
    <float[1,2,1] step = {0.25, 0.5}> { [a] divided = Div(x, step)  [b] y = Cast<to = 6>(divided) }
    """
    record = {
        "provenance": [{"old": "y", "new": "y", "relation": "same"}],
        "outputs": {"y": {"integer": "y", "dtype": "int32", "scale": [0.25, 0.5], "zero_point": 0, "axis": 1}},
    }
    reference = save(
        tmp_path,
        "a",
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,2] x) => (float[1,2,2] y) { [i] y = Identity(x) }',
    )
    found = compared(reference, save(tmp_path, "b", text, record), samples_of(tmp_path, [FIRST * 2]))
    assert found.outputs[0].figures.sqnr_db == EXACT_DB


def test_graph_json_serves_as_a_record(tmp_path: Path) -> None:
    record = {"inputs": ["x"], "outputs": ["y"], "provenance": scaled("held")["provenance"]}
    assert save(tmp_path, "b", CANDIDATE, record).outputs["y"].factor == 1.0


def test_the_limit_takes_examples_evenly(tmp_path: Path) -> None:
    model = save(tmp_path, "a", REFERENCE)
    assert compared(model, model, samples_of(tmp_path, [FIRST] * 9), limit=4).examples == 4


def test_no_example_is_refused(tmp_path: Path) -> None:
    model = save(tmp_path, "a", REFERENCE)
    with pytest.raises(StageError):
        compared(model, model, samples_of(tmp_path, []))


def test_the_worst_tensor_comes_first_and_nan_before_all(tmp_path: Path) -> None:
    broken = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,2] x) => (float[1,2,2] y) <float off = {0.01}> {
        [n0] a = Add(x, off)  [n1] b = Add(x, x)  [n2] c = Log(x)  [n3] s = Add(a, b)  [n4] y = Identity(s) }
    """
    fine = (
        broken.replace("Add(x, off)", "Identity(x)")
        .replace("Log(x)", "Identity(x)")
        .replace("<float off = {0.01}>", "")
    )
    found = compared(save(tmp_path, "a", fine), save(tmp_path, "b", broken), samples_of(tmp_path, [FIRST]))
    assert [entry.name for entry in found.tensors] == ["c", "a", "s", "b"]


def rgb_models(folder: Path) -> tuple[TracedModel, TracedModel]:
    """The float model hands its input on; the candidate reads nv12, and does so for grey pictures."""
    reference = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,4,4] x) => (float[1,3,4,4] y) { [i] y = Identity(x) }'
    )
    luma = helper.make_tensor_value_info("x_y", TensorProto.UINT8, [1, 4, 4, 1])
    chroma = helper.make_tensor_value_info("x_uv", TensorProto.UINT8, [1, 2, 2, 2])
    # for grey pictures U = V = 128 and R = G = B = Y: the chroma must be handed over, and changes nothing
    nodes = [
        helper.make_node("Cast", ["x_y"], ["yf"], name="c0", to=TensorProto.FLOAT),
        helper.make_node("Div", ["yf", "255"], ["yd"], name="c1"),
        helper.make_node("Transpose", ["yd"], ["yt"], name="c2", perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["x_uv"], ["uf"], name="c3", to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["uf"], ["um"], name="c4", keepdims=0),
        helper.make_node("Sub", ["um", "128"], ["zero"], name="c5"),
        helper.make_node("Add", ["yt", "zero"], ["yz"], name="c6"),
        helper.make_node("Concat", ["yz", "yz", "yz"], ["y"], name="c7", axis=1),
    ]
    constants = [numpy_helper.from_array(np.array(value, np.float32), str(value)) for value in (255, 128)]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 4, 4])
    graph = helper.make_graph(nodes, "g", [luma, chroma], [output], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "n.onnx")
    record = {"runtime_inputs": {"x": {"type": "nv12", "range": "full", "tensors": ["x_y", "x_uv"]}}}
    (folder / "n.json").write_text(json.dumps(record))
    return save(folder, "f", reference), TracedModel.load(folder / "n.onnx", folder / "n.json")


def test_a_model_that_takes_nv12_is_fed_the_encoded_pixels(tmp_path: Path) -> None:
    linear = LinearStep(channels="rgb", divide_by=255.0, mean=(0.0,) * 3, std=(1.0,) * 3, layout="NCHW")
    grey = np.random.default_rng(1).integers(0, 256, (4, 4, 1), dtype=np.uint8).repeat(3, axis=2)
    found = compared(*rgb_models(tmp_path), samples_of(tmp_path, [grey], linear, (1, 3, 4, 4)))
    assert found.outputs[0].figures.sqnr_db == EXACT_DB


def test_prepared_samples_cannot_be_encoded(tmp_path: Path) -> None:
    with pytest.raises(StageError):
        compared(*rgb_models(tmp_path), samples_of(tmp_path, [np.zeros((1, 3, 4, 4), np.float32)], None, (1, 3, 4, 4)))
