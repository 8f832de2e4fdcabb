"""``examples/read_package.py``, which imports nothing of npubake, against ``npubake run``: bit for bit."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from npubake.fixedpoint.colour import BT601
from npubake.toolchains.reference.running import load_package, run_files
from tests.toolchains.digits import GRAY, J6E, J6P, ROOT, calibrated, compiled, quantised

EXAMPLE = ROOT / "examples" / "read_package.py"


def test_it_needs_no_npubake() -> None:
    imports = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(EXAMPLE.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [entry.name for entry in node.names])
    }
    assert imports == {"json", "sys", "zipfile", "numpy", "onnxruntime", "PIL"}


@pytest.mark.parametrize("platform", [J6E, J6P], ids=["int32 tail", "float32 tail"])
def test_a_classifier_answers_the_same(platform: dict[str, object], tmp_path: Path) -> None:
    params = {"runtime_input": GRAY, "tail": platform["tail"]}
    road = compiled(quantised(calibrated().branch(tmp_path), params), {"platform": platform})
    picture = tmp_path / "large.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (40, 61), dtype=np.uint8)).save(picture)
    package = road.files["compile.deployable"]
    want = run_files(load_package(package), [("", picture)]).outputs
    got = runpy.run_path(str(EXAMPLE))["run"](package, picture)
    assert set(got) == set(want)
    for name, value in want.items():
        assert (got[name].dtype, got[name].tobytes()) == (value.dtype, value.tobytes())
    shown = subprocess.run(
        [sys.executable, str(EXAMPLE), str(package), str(picture)], capture_output=True, text=True, check=True
    )
    assert f"(0, {want['logits'].argmax()})" in shown.stdout.splitlines()[1]


def test_its_integers_are_those_of_the_colour_room() -> None:
    for name, (rows, black, low, high) in runpy.run_path(str(EXAMPLE))["RGB_TO_YUV"].items():
        assert [list(row) for row in BT601[name].to_yuv] == rows
        assert BT601[name].offset == black
        assert (low, high) == (((0,) * 3, (255,) * 3) if name == "full" else ((16,) * 3, (235, 240, 240)))
