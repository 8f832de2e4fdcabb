"""graph.model_file: bytes that repeat, and what is refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from npubake.errors import RecipeError
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


def test_a_model_without_nodes_is_refused() -> None:
    with pytest.raises(RecipeError):
        parse_model(onnx.ModelProto(ir_version=10).SerializeToString())
