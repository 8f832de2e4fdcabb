"""Figures of a compiled artifact: against both models, worst example, steps, and NaN that passes for nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.release.agreement import Agreement
from npubake.toolchains.qualcomm.release.verification import comparisons, judge
from npubake.toolchains.recorded import Recorded

SCALE, ZERO = 0.5, 10
CONTRACT: dict[str, Any] = {
    "inputs": [],
    "outputs": [{"name": "y", "model_output": "out", "dtype": "uint8", "valid_shape": [1, 2], "scale": [SCALE],
                 "zero_point": ZERO}],
    "runtime_inputs": {},
    "removed": [{"side": "outputs", "tensor": "y", "op_type": "DequantizeLinear",
                 "affine": {"scale": [SCALE], "zero_point": ZERO, "axis": None}}],
}  # fmt: skip


def example(name: str, *codes: int) -> Recorded:
    return Recorded(example=name, inputs={}, outputs={"y": np.array([codes], np.uint8)})


def real(*values: float) -> dict[str, Any]:
    return {"out": np.array([values], np.float32)}


def test_figures_of_two_examples_by_hand() -> None:
    made = Agreement(CONTRACT, "top1")
    made.add(example("first", 12, 14), real(1.0, 2.0), real(1.0, 2.0))  # gives 1, 2
    made.add(example("second", 16, 10), real(4.0, 0.5), real(4.0, 0.0))  # gives 3, 0
    told = made.to_json()
    output, agreed = told["outputs"]["out"], told["agreement"]["outputs"]["out"]
    assert told["examples"] == 2
    assert output["sqnr_db"] == pytest.approx(10 * math.log10((1 + 4 + 16 + 0.25) / (1 + 0.25)))
    assert agreed["sqnr_db"] == pytest.approx(10 * math.log10((1 + 4 + 16) / 1))
    assert agreed["quantised_sqnr_db"] == pytest.approx(10 * math.log10((1 + 4 + 16 + 0.25) / 0.25))
    assert (output["worst_example"], output["max_abs"], agreed["largest_steps"]) == ("second", 1.0, 2)
    assert output["min_cosine"] == pytest.approx(4 * 3 / math.sqrt((16 + 0.25) * 9))
    assert agreed["min_cosine"] == pytest.approx(1.0)
    assert "boxes" not in told


def test_nan_is_the_worst_and_passes_nothing() -> None:
    made = Agreement(CONTRACT, "")
    made.add(example("first", 12, 14), real(1.0, 2.0), real(math.nan, 2.0))
    made.add(example("second", 12, 14), real(1.0, 2.0), real(1.0, 2.0))
    agreed = made.to_json()["agreement"]["outputs"]["out"]
    assert (agreed["cosine"], agreed["min_cosine"], agreed["largest_steps"]) == (None, None, None)
    assert agreed["worst_example"] == "first"
    with pytest.raises(Exception, match="cosine None"):
        judge(comparisons(made.to_json()))


def test_an_output_that_the_artifact_lacks_is_refused() -> None:
    with pytest.raises(StageError) as caught:
        Agreement(CONTRACT, "").require(["out", "other"])
    assert [fault.where for fault in caught.value.faults] == ["other"]


def test_boxes_of_a_detector_are_matched_within_the_binarys_step() -> None:
    edges = [
        {"name": name, "model_output": name, "dtype": "float32", "valid_shape": shape, "scale": scale, "zero_point": 0}
        for name, shape, scale in (("boxes", [1, 4, 1], [4.0]), ("scores", [1, 1, 1], None))
    ]
    made = Agreement({**CONTRACT, "outputs": edges, "removed": []}, "coco_map")
    box = np.array([[[100.0], [100.0], [20.0], [20.0]]], np.float32)
    moved = box + np.array([[[4.0], [0.0], [0.0], [0.0]]], np.float32)
    scores = np.full((1, 1, 1), 0.8, np.float32)
    done = Recorded(example="e", inputs={}, outputs={"boxes": moved, "scores": scores})
    both = {"boxes": box, "scores": scores}
    made.add(done, both, both)
    boxes = made.to_json()["boxes"]
    assert (boxes["matched"], boxes["within_a_step"], boxes["fraction"], boxes["step_pixels"]) == (0, 1, 1.0, 4.0)
    assert (boxes["only_candidate"], boxes["only_quantised"], boxes["iou"]) == (0, 0, 0.9)
