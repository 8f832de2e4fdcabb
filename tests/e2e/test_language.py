"""Presets of language models: a decoder block with a cache, and a model of a picture and tokens, built end to end."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.e2e.workspace import REPOSITORY, Workspace

MULTIMODAL = """\
version: 1
model: {path: ../models/both.onnx}
preset:
  name: multimodal
  sequence_length: 6
  axes: {picture: [batch, colour, height, width], tokens: [batch, sequence]}
calibration: {data: ../data/both.json, samples: 4}
platform: generic
"""


def script() -> ModuleType:
    """models/make_decoder_block.py as a module."""
    spec = importlib.util.spec_from_file_location("decoder_block", REPOSITORY / "models" / "make_decoder_block.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def decoder(tmp_path: Path) -> Workspace:
    """A project of the decoder block alone."""
    for file in ("recipes/decoder_block.yaml", "models/decoder_block.onnx", "data/decoder_block/calibration.npz"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / file)
    return Workspace(root=tmp_path)


def arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(path) as held:
        return {name: held[name] for name in held.files}


def edit(workspace: Workspace, old: str, new: str) -> None:
    workspace.edit(old, new, workspace.root / "recipes" / "decoder_block.yaml")


def test_model_and_data_are_what_the_script_makes(tmp_path: Path) -> None:
    made = script()
    constants = made.weights()
    assert made.model(constants).SerializeToString(deterministic=True) == made.MODEL.read_bytes()
    made.save_npz(tmp_path / "again.npz", made.data(constants))
    kept, again = arrays(made.DATA), arrays(tmp_path / "again.npz")
    assert kept.keys() == again.keys()
    for name, value in kept.items():  # another BLAS may round the last bit of float16 otherwise
        np.testing.assert_allclose(value.astype(float), again[name].astype(float), rtol=2e-3, atol=1e-3)


def test_the_cache_of_the_data_is_the_one_that_the_block_makes() -> None:
    import onnxruntime

    made = script()
    session = onnxruntime.InferenceSession(str(made.MODEL), providers=["CPUExecutionProvider"])
    first = {name: value[:1] for name, value in arrays(made.DATA).items()}
    fed = {name: value.astype(np.float32) if value.dtype == np.float16 else value for name, value in first.items()}
    _, key, value = session.run(None, fed)
    keys, values = made.past(fed["embeddings"][0].astype(np.float64), made.weights())
    np.testing.assert_allclose(key[0, :, made.CACHE :], keys[:, : made.SEQUENCE], atol=5e-3)
    np.testing.assert_allclose(value[0, :, made.CACHE :], values[:, : made.SEQUENCE], atol=5e-3)


def test_the_decoder_block_is_planned_checked_and_built(decoder: Workspace) -> None:
    assert decoder.run("plan", "--json").code == 0
    built = decoder.run("build", "decoder_block", "--json")
    assert built.code == 0, built.err
    manifest = json.loads((decoder.root / "build/decoder_block_j6p/manifest.json").read_text())["reproducible"]
    assert manifest["releasable"]["value"]
    assert [entry["name"] for entry in manifest["interface"]["inputs"]] == [
        "embeddings", "positions", "mask", "past_key", "past_value",
    ]  # fmt: skip
    assert manifest["calibration"]["preset"]["sequence"]["cache_length"] == 24
    edit(decoder, "platforms: [generic, j6p]", "platforms: [generic, j6p]\nquant_config: {bits: {roles: {ffn: int16}}}")
    rows = decoder.run("plan", "decoder_block_j6p", "--layers", "--match", "query", "--json").json["layers"]
    assert [row["layer"] for row in rows["decoder_block_j6p"]] == ["/query_product/MatMul"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sequence_length: 8", "sequence_length: 16", "embeddings: the sequence is 8 in the model, 16 in the preset"),
        ("cache_length: 24", "cache_length: 23", "past_key: the cache is 24 in the model, 23 in the preset"),
        ("past_key: [batch, heads, cache, depth]", "past_key: [batch, cache, heads, depth]", "the cache is 2"),
        ("    positions: [batch, sequence]\n", "", "the axes of the input 'positions' are not described"),
    ],
)
def test_lengths_that_do_not_fit_the_model_are_refused_at_their_line(
    decoder: Workspace, old: str, new: str, words: str
) -> None:
    edit(decoder, old, new)
    refused = decoder.run("check", "decoder_block_generic")
    assert (refused.code, words in refused.err, "decoder_block.yaml:" in refused.err) == (2, True, True)


def test_examples_that_do_not_fit_the_lengths_are_refused_by_name(decoder: Workspace) -> None:
    path = decoder.root / "data" / "decoder_block" / "calibration.npz"
    whole = arrays(path)

    def given(**changes: NDArray[np.generic]) -> str:
        np.savez(path, allow_pickle=False, **{**whole, **changes})
        refused = decoder.run("check", "decoder_block_generic")
        assert refused.code == 2
        return refused.err

    assert "input 'past_key': the cache is 20 long" in given(past_key=whole["past_key"][:, :, :20])
    assert "'embeddings': the sequence is 6 long" in given(embeddings=whole["embeddings"][:, :6])
    assert "different numbers of examples: 47, 48" in given(positions=whole["positions"][:-1])
    padded = whole["embeddings"].copy()
    padded[0, 5:] = 0
    assert "ends in 3 rows of zeros" in given(embeddings=padded)
    edit(decoder, "name: llm", "name: llm_fast")
    assert decoder.run("check", "decoder_block_generic").code == 0


def multimodal_model() -> onnx.ModelProto:
    """Patches of a picture and embedded tokens, one sequence, a linear layer on its mean."""
    generator = np.random.Generator(np.random.PCG64(3))
    constants = {
        "patch": generator.standard_normal((8, 3, 4, 4)) / 7,
        "table": generator.standard_normal((16, 8)),
        "head": generator.standard_normal((8, 5)) / 3,
    }
    nodes = [
        helper.make_node("Conv", ["picture", "patch"], ["patches"], name="patches", strides=[4, 4]),
        helper.make_node("Reshape", ["patches", "flat"], ["seen"], name="seen"),
        helper.make_node("Transpose", ["seen"], ["seen_rows"], name="seen_rows", perm=[0, 2, 1]),
        helper.make_node("Gather", ["table", "tokens"], ["words"], name="words"),
        helper.make_node("Concat", ["seen_rows", "words"], ["all"], name="all", axis=1),
        helper.make_node("ReduceMean", ["all"], ["mean"], name="mean", axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "head"], ["logits"], name="head"),
    ]
    graph = helper.make_graph(
        nodes,
        "both",
        [
            helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, 8, 8]),
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, 6]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 5])],
        [
            *(numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()),
            numpy_helper.from_array(np.array([1, 8, 4], dtype=np.int64), "flat"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def both(tmp_path: Path) -> Workspace:
    """A project of the multimodal model: four examples of a picture and its tokens, listed together."""
    for folder in ("recipes", "models", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "recipes" / "both.yaml").write_text(MULTIMODAL)
    onnx.save(multimodal_model(), tmp_path / "models" / "both.onnx")
    generator = np.random.Generator(np.random.PCG64(4))
    rows = []
    for index in range(4):
        np.save(tmp_path / "data" / f"picture{index}.npy", generator.random((3, 8, 8), dtype=np.float32))
        np.save(tmp_path / "data" / f"tokens{index}.npy", generator.integers(0, 16, 6))
        rows.append({"picture": f"picture{index}.npy", "tokens": f"tokens{index}.npy"})
    (tmp_path / "data" / "both.json").write_text(json.dumps(rows))
    return Workspace(root=tmp_path)


def test_a_picture_and_its_tokens_are_calibrated_together(both: Workspace) -> None:
    built = both.run("build", "--json")
    assert built.code == 0, built.err
    bundle = json.loads((both.root / "build" / "both" / "contract.json").read_text())
    assert {entry["name"] for entry in bundle["inputs"]} == {"picture", "tokens"}


def test_an_example_without_one_of_its_inputs_is_refused(both: Workspace) -> None:
    path = both.root / "data" / "both.json"
    rows = json.loads(path.read_text())
    del rows[2]["tokens"]
    path.write_text(json.dumps(rows))
    refused = both.run("check")
    assert (refused.code, "both.json[2]" in refused.err) == (2, True)


def test_tokens_of_another_length_are_refused_by_name(both: Workspace) -> None:
    held = io.BytesIO()
    np.save(held, np.arange(7))
    (both.root / "data" / "tokens0.npy").write_bytes(held.getvalue())
    refused = both.run("check")
    assert (refused.code, "'tokens': the sequence is 7 long" in refused.err) == (2, True)
