"""``npubake export`` of a target of the reference toolchain: each piece against what the build itself published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.untuned


def export(workspace: Workspace, kind: str, *words: str) -> dict[str, Any]:
    result = workspace.run("export", "small", "--format", kind, "--json", *words)
    assert result.code == 0, result.err
    answer: dict[str, Any] = result.json
    return answer


def quantisers(path: Path) -> dict[str, tuple[float, int, str]]:
    """Tensor -> scale, zero point and type of its QuantizeLinear, by the nodes of a QDQ model."""
    graph = onnx.load(path).graph
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            scale, zero = (held[name] for name in node.input[1:3])
            found[node.input[0].removesuffix("/float")] = (float(scale), int(zero), str(zero.dtype))
    return found


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
def test_encodings_are_the_quantisers_of_the_built_qdq_model(built: Workspace, version: str) -> None:
    """offset = -zero point of uint8, -32768 of a symmetric int16; the weights' scales are those of its initialisers."""
    answer = export(built, "encodings", "--encodings-version", version)
    folder = built.root / answer["folder"]
    content = json.loads((folder / "small.encodings").read_text())
    if version == "0.6.1":
        sides = [
            {
                name: [(row["scale"], row["offset"], row["bitwidth"]) for row in rows]
                for name, rows in content[side].items()
            }
            for side in ("activation_encodings", "param_encodings")
        ]
    else:
        sides = [
            {row["name"]: [(s, o, row["bw"]) for s, o in zip(row["scale"], row["offset"], strict=True)]
             for row in content[side] if row["dtype"] == "INT"}
            for side in ("activation_encodings", "param_encodings")
        ]  # fmt: skip
    model = built.root / "build" / "small" / "small_calibrated_model.onnx"
    wanted = quantisers(model)
    assert len(wanted) > 10
    for name, (scale, zero, dtype) in wanted.items():
        bits, low = (16, -32768) if dtype == "int16" else (8, 0)
        assert sides[0][name] == [(pytest.approx(scale, rel=1e-6), low - zero, bits)], name
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}
    assert sides[1]
    for name, rows in sides[1].items():
        np.testing.assert_allclose([row[0] for row in rows], held[f"{name}/scale"], rtol=1e-6)
    exported = onnx.load(folder / "small_float_model.onnx").graph
    assert set(sides[1]) <= {tensor.name for tensor in exported.initializer}
    made = {name for node in exported.node for name in node.output} | {value.name for value in exported.input}
    assert set(sides[0]) <= made


def test_the_qdq_model_is_the_one_that_was_built(built: Workspace) -> None:
    answer = export(built, "qdq", "--out", "somewhere/else")
    assert answer["folder"] == "somewhere/else"
    written = built.root / "somewhere" / "else" / "small_qdq_model.onnx"
    assert written.read_bytes() == (built.root / "build" / "small" / "small_calibrated_model.onnx").read_bytes()


def test_raw_files_are_the_pictures_as_the_model_is_fed(built: Workspace) -> None:
    """float32, pixel / 255, in the order of the sample set; the list names each."""
    answer = export(built, "input-list")
    folder = built.root / answer["folder"]
    lines = (folder / "input_list.txt").read_text().splitlines()
    assert lines == [f"raw/{index:05d}_image.raw" for index in range(16)]
    pictures = [np.asarray(Image.open(path), np.float32) / np.float32(255)
                for path in sorted((built.root / "data" / "calibration").glob("*.png"))]  # fmt: skip
    found = [np.fromfile(folder / line, "<f4") for line in lines]
    assert all(any(np.allclose(one, picture.ravel(), atol=1e-7) for picture in pictures) for one in found)


def test_what_is_exported_twice_is_the_same(built: Workspace) -> None:
    first = export(built, "encodings", "--out", "one")
    second = export(built, "encodings", "--out", "two")
    assert first["files"] == second["files"]
    for entry in first["files"]:
        assert (built.root / "one" / entry["path"]).read_bytes() == (built.root / "two" / entry["path"]).read_bytes()


def test_a_script_needs_an_soc_of_qualcomm(built: Workspace) -> None:
    result = built.run("export", "small", "--format", "qairt-script")
    assert result.code == 2
    assert "generic is no SoC of Qualcomm" in result.err


def test_what_is_not_built_is_said_with_the_command(fresh: Workspace) -> None:
    result = fresh.run("export", "small", "--format", "encodings", "--json")
    assert result.code == 2
    assert "npubake build small --until optimize" in result.json["error"]["faults"][0]["hint"]


def test_a_target_built_as_far_as_it_takes_is_enough(fresh: Workspace) -> None:
    assert fresh.run("build", "small", "--until", "samples", "--json").code == 0
    assert len(export(fresh, "input-list")["files"]) == 17


def test_a_changed_recipe_makes_the_build_no_longer_current(built: Workspace) -> None:
    built.edit("percentile: 0.9999", "percentile: 0.99")
    result = built.run("export", "small", "--format", "qdq")
    assert result.code == 2
    assert "not as recipe and data are now" in result.err


def test_a_place_that_cannot_be_written_is_named(built: Workspace) -> None:
    (built.root / "taken").write_text("a file")
    result = built.run("export", "small", "--format", "qdq", "--out", "taken")
    assert result.code == 2
    assert "taken" in result.err


@pytest.mark.parametrize("words", [("nowhere", "--format", "qdq"), ("small", "--format", "dlc"), ("small",)])
def test_mistakes_on_the_command_line(built: Workspace, words: tuple[str, ...]) -> None:
    assert built.run("export", *words).code == 2
