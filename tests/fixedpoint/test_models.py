"""The committed classifiers in integers: every output equals the independent evaluator at every setting."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from npubake.graph.importing import import_model
from npubake.graph.optimizing import optimize_model
from tests.fixedpoint.builds import SETTINGS, Case, calibrated, session

Array = NDArray[Any]
ROOT = Path(__file__).parents[2]


@cache
def images() -> Array:
    with np.load(ROOT / "data/digits_cls/validation.npz") as data:
        return np.asarray(data["images"], np.float32)


@cache
def classifier(name: str, lane: str) -> Case:
    model = import_model((ROOT / f"models/{name}.onnx").read_bytes(), {})
    optimized = optimize_model(model).model
    source = optimized.graph.input[0].name
    samples: list[Mapping[str, Array]] = [{source: images()[i : i + 1]} for i in range(400, 424)]
    return calibrated(optimized, samples, lane, calibration={"method": "minmax", "asymmetric": True})


@pytest.mark.parametrize(
    ("name", "lane", "count"),
    [
        ("digits_mobilenet", "a8w8", 24),
        ("digits_mobilenet", "a16w8", 8),
        ("digits_vit", "a8w8", 8),
        ("digits_vit", "a16w8", 1),
    ],
)
def test_classifier_equals_the_evaluator(name: str, lane: str, count: int) -> None:
    case = classifier(name, lane)
    lowered = case.lower()
    assert not lowered.float_nodes
    (source,), (output,) = case.summary.inputs, case.summary.outputs
    expected = np.concatenate([case.expected({source: images()[i : i + 1]})[output] for i in range(count)])
    for level, threads in SETTINGS:
        runner = session(lowered.model, level, threads)
        found = [runner.run(None, {source: images()[i : i + 1]})[0] for i in range(count)]
        np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.parametrize(("name", "lane", "least"), [("digits_mobilenet", "a8w8", 25.0), ("digits_vit", "a8w8", 20.0)])
def test_integers_stay_close_to_the_float_model(name: str, lane: str, least: float) -> None:
    case = classifier(name, lane)
    (source,) = case.summary.inputs
    runners = [session(case.model), session(case.lower("float32").model)]
    exact, found = (
        np.concatenate([runner.run(None, {source: images()[i : i + 1]})[0] for i in range(100)]) for runner in runners
    )
    noise = float(np.square(exact - found).sum())
    assert 10 * np.log10(float(np.square(exact).sum()) / noise) > least


def test_tails_hold_the_same_values() -> None:
    case = classifier("digits_mobilenet", "a8w8")
    feeds = {case.summary.inputs[0]: images()[:1]}
    integer, real = case.lower("int32"), case.lower("float32")
    np.testing.assert_array_equal(*(session(entry.model).run(None, feeds)[0] for entry in (integer, real)))
    assert integer.outputs["logits"].dtype == "int32"
    assert integer.outputs["logits"].integer == "logits/accumulator"
    assert [node.op_type for node in integer.model.graph.node if node.output[0] == "logits"] == ["DequantizeLinear"]
    assert real.outputs["logits"].dtype == "float32"
    assert not [node for node in real.model.graph.node if node.op_type == "DequantizeLinear"]


def letterboxed(path: Path, size: int = 640) -> Array:
    """A photograph as the detector sees it: longest side resized, padded with 114 at the right and below, 0..1."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    factor = size / max(image.size)
    image = image.resize((round(image.width * factor), round(image.height * factor)))
    canvas = np.full((size, size, 3), 114, np.uint8)
    canvas[: image.height, : image.width] = np.asarray(image)
    return (canvas.transpose(2, 0, 1)[None] / 255).astype(np.float32)


def test_detector_equals_the_evaluator() -> None:
    """The whole detector on a real photograph, 117,600 outputs."""
    model = import_model((ROOT / "models/digits_yolo_640.onnx").read_bytes(), {})
    optimized = optimize_model(model).model
    photographs = sorted((ROOT / "data/digits/calibration").rglob("*.jpg"))[:3]
    samples = [{"images": letterboxed(path)} for path in photographs]
    case = calibrated(optimized, samples[:2], "a8w8", calibration={"method": "minmax", "asymmetric": True})
    lowered = case.lower()
    assert not lowered.float_nodes
    expected = case.expected(samples[2])
    for level, threads in (SETTINGS[0], SETTINGS[-1]):
        found = session(lowered.model, level, threads).run(None, samples[2])
        for name, value in zip(case.summary.outputs, found, strict=True):
            np.testing.assert_array_equal(value, expected[name])
