"""A model whose weights lie in another file: built like any other; the file is an input like the model itself."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.e2e.workspace import Workspace

MODEL = "models/digits_mobilenet.onnx"


OPTIMISED = "build/small/small_optimized_float_model.onnx"


def _take_apart(workspace: Workspace) -> Path:
    """Put the weights of the small project's model into ``models/weights/digits.bin``."""
    whole = onnx.load(workspace.root / MODEL)
    data = workspace.root / "models" / "weights" / "digits.bin"
    data.parent.mkdir()
    onnx.save_model(
        whole, workspace.root / MODEL, save_as_external_data=True, location="weights/digits.bin", size_threshold=0
    )
    return data


def test_it_gives_the_bytes_of_the_model_in_one_piece(fresh: Workspace) -> None:
    fresh.build("small", "--until", "optimize")
    whole = (fresh.root / OPTIMISED).read_bytes()
    _take_apart(fresh)
    result = fresh.build("small", "--until", "optimize")
    assert result.ran() == ["import"]  # it makes the same, so that nothing behind it runs
    assert (fresh.root / OPTIMISED).read_bytes() == whole


def test_a_change_in_the_other_file_alone_is_noticed(fresh: Workspace) -> None:
    data = _take_apart(fresh)
    fresh.build("small", "--until", "import")
    data.write_bytes(data.read_bytes()[:-1] + b"\x3e")
    assert fresh.build("small", "--until", "import").ran() == ["import"]


def test_a_file_that_is_lost_is_told_at_the_recipes_line(fresh: Workspace, tmp_path: Path) -> None:
    _take_apart(fresh).rename(tmp_path / "digits.bin")
    result = fresh.run("build", "small")
    assert result.code == 2
    assert "small.yaml:3" in result.err
    assert "weights/digits.bin" in result.err
