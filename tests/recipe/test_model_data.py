"""recipe.model_data: names of weight files, read from the protobuf's wire format, against onnx's own reading."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from npubake.recipe.model_data import MAX_BYTES, find_model_data

WHERE = "r.yaml:2:9"


def _model() -> onnx.ModelProto:
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(4, np.float32), "c_value"))
    inner = helper.make_graph(
        [helper.make_node("Identity", ["v"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.ones(3, np.float32), "v")],
    )
    branch = helper.make_node("If", ["flag"], ["z"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph(
        [constant, helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["y"]), branch],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [weights, numpy_helper.from_array(np.array(True), "flag")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _outside(tensor: TensorProto, location: str, length: int | None = None) -> None:
    external_data_helper.set_external_data(tensor, location, 0, length)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


def test_a_model_in_one_piece_names_none(tmp_path: Path) -> None:
    onnx.save(_model(), tmp_path / "m.onnx")
    found = find_model_data(tmp_path / "m.onnx", WHERE)
    assert (found.files, found.faults) == ({}, ())


def test_names_are_found_wherever_a_tensor_may_stand(tmp_path: Path) -> None:
    model = _model()
    _outside(model.graph.initializer[0], "weights.bin", 48)
    _outside(model.graph.node[0].attribute[0].t, "below/constants.bin", 16)
    _outside(model.graph.node[3].attribute[1].g.initializer[0], "inner.bin", 12)
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "below").mkdir()
    for name in ("weights.bin", "below/constants.bin", "inner.bin"):
        (tmp_path / name).write_bytes(bytes(48))
    found = find_model_data(tmp_path / "m.onnx", WHERE)
    assert list(found.files) == ["below/constants.bin", "inner.bin", "weights.bin"]
    assert found.files["weights.bin"] == tmp_path / "weights.bin"
    assert found.faults == ()


@pytest.mark.parametrize("name", ["lost.bin", "../elsewhere.bin", "/etc/hostname", ""])
def test_a_name_that_leads_nowhere_or_away_is_a_fault_at_the_recipes_line(tmp_path: Path, name: str) -> None:
    model = _model()
    _outside(model.graph.initializer[0], name)
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "elsewhere.bin").write_bytes(bytes(48))
    onnx.save(model, folder / "m.onnx")
    (fault,) = find_model_data(folder / "m.onnx", WHERE).faults
    assert (fault.where, fault.path) == (WHERE, "$.model.path")
    assert repr(name) in fault.what
    assert fault.hint


def test_what_fits_no_artifact_is_refused_before_it_is_read(tmp_path: Path) -> None:
    model = _model()
    _outside(model.graph.initializer[0], "weights.bin")
    onnx.save(model, tmp_path / "m.onnx")
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(MAX_BYTES)  # sparse: takes no disk
    (fault,) = find_model_data(tmp_path / "m.onnx", WHERE).faults
    assert str(MAX_BYTES) in fault.what
    assert fault.path == "$.model.path"


@pytest.mark.parametrize("size", [0, 1, 40, 200])
def test_what_is_no_whole_model_names_none(tmp_path: Path, size: int) -> None:
    model = _model()
    _outside(model.graph.initializer[0], "weights.bin")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString()[:size] + b"\n\x08location"[: 10 if size else 0])
    assert find_model_data(tmp_path / "m.onnx", WHERE).files == {}
