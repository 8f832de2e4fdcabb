"""AIMET as the quantiser on the road of the SDK, against a FAKE SDK folder: its encodings go in as the overrides."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import onnx
import pytest

from tests.e2e.qairt_site import Site
from tests.toolchains.qualcomm.qairt.fake_sdk import make_sdk

pytestmark = pytest.mark.skipif(importlib.util.find_spec("aimet_onnx") is None, reason="aimet-onnx is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Built with a gray picture as bytes. Never changed."""
    site = Site.create(tmp_path_factory.mktemp("aimet") / "site")
    site.workspace.edit("calibration:\n  data", "runtime_input:\n  image: {type: gray}\ncalibration:\n  data")
    site.workspace.edit("road: sdk,", "road: sdk, quantiser: aimet,")
    text = site.workspace.recipe.read_text()
    begin, end = text.index("quant_config:"), text.index("gates:")  # what AIMET cannot heed is refused
    site.workspace.recipe.write_text(text[:begin] + text[end:])
    result = site.build()
    assert result.code == 0, result.err
    return site


def test_the_binary_holds_the_encodings_that_aimet_wrote(site: Site) -> None:
    """Each of its entries, but the picture's input: that goes on under another name behind the bytes."""
    held = json.loads((site.workspace.root / "build" / "small" / "model_ctx_qnn.bin").read_text())["encodings"]
    wrote = site.made("small.encodings")
    for side in ("activation_encodings", "param_encodings"):
        theirs = {entry["name"]: entry for entry in held[side]}
        wanted = {entry["name"]: entry for entry in wrote[side] if entry["name"] != "image"}
        assert wanted.keys() <= theirs.keys()
        for name, entry in wanted.items():
            assert theirs[name]["bw"] == entry["bw"], name
            assert theirs[name]["scale"] == pytest.approx(entry["scale"]), name
            assert theirs[name]["offset"] == entry["offset"], name
    edges = site.made("contract.json")["inputs"]
    assert [(edge["dtype"], edge["kind"]) for edge in edges] == [("uint8", "gray")]


def test_every_encoding_names_a_tensor_of_the_model_beside_it(site: Site, tmp_path: Path) -> None:
    """By ``export``, with neither the SDK nor a change of what was built."""
    words = ("export", "small", "--format", "encodings", "--out", str(tmp_path), "--json")
    result = site.run(*words, QAIRT_SDK_ROOT="")
    assert result.code == 0, result.err
    graph = onnx.load(tmp_path / "small_float_model.onnx").graph
    constants = {tensor.name for tensor in graph.initializer}
    computed = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    content = json.loads((tmp_path / "small.encodings").read_text())
    assert {entry["name"] for entry in content["activation_encodings"]} <= computed | constants
    assert {entry["name"] for entry in content["param_encodings"]} <= constants


def test_the_other_pieces_are_exported_too(site: Site, tmp_path: Path) -> None:
    for kind in ("qdq", "qairt-script", "input-list"):
        words = ("export", "small", "--format", kind, "--out", str(tmp_path / kind), "--json")
        result = site.run(*words, QAIRT_SDK_ROOT=str(make_sdk(tmp_path / f"sdk {kind}")))
        assert result.code == 0, result.err
