"""graph.model_file: bytes that repeat, and what is refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from npubake.errors import RecipeError, StageError
from npubake.graph.model_file import load_model, parse_model, save_model, serialise
from tests.graph.writing import build, normal


def test_a_model_survives_its_file(tmp_path: Path) -> None:
    model = build("float[2,5] x => float[2,4] y", "y = MatMul(x, w)", w=normal(5, 4))
    save_model(model, tmp_path / "model.onnx")
    assert load_model(tmp_path / "model.onnx") == model
    assert (tmp_path / "model.onnx").read_bytes() == serialise(model)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    model = build("float[2,5] x => float[2,4] y", "y = MatMul(x, w)", w=normal(5, 4))
    path = tmp_path / "cut.onnx"
    path.write_bytes(serialise(model)[:-40])
    with pytest.raises(RecipeError) as caught:
        load_model(path)
    assert caught.value.faults[0].where == "cut.onnx"


def test_what_no_protobuf_can_hold_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("float[2,5] x => float[2,4] y", "y = MatMul(x, w)", w=normal(5, 4))
    data = serialise(model)
    monkeypatch.setattr("npubake.graph.model_file.MAX_PROTOBUF_BYTES", len(data) - 1)
    with pytest.raises(RecipeError, match="2 GiB"):
        parse_model(data)
    with pytest.raises(StageError, match="2 GiB"):
        serialise(model)


def test_a_model_without_nodes_is_refused() -> None:
    with pytest.raises(RecipeError):
        parse_model(onnx.ModelProto(ir_version=10).SerializeToString())
