"""Stage ``measure_product``: the classifier's accuracy against numpy, and a detector's mAP on real labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import RecipeError
from npubake.recipe.presets import PRESETS
from npubake.stages import measure_product
from tests.calibration.sets import build, inputs_only, job, request
from tests.stages.planted import MODEL, ROOT, VALIDATION, validation_set

PICTURES = ROOT / "data" / "digits" / "validation"


def test_top1_is_the_share_of_right_answers(tmp_path: Path) -> None:
    inputs = {"model": MODEL, "samples": validation_set(tmp_path, 100), "labels": [VALIDATION]}
    measure_product.run(job(tmp_path, {"metric": "top1"}, ("figures",), **inputs))
    found = json.loads((tmp_path / "figures").read_text())
    session = onnxruntime.InferenceSession(MODEL.read_bytes(), providers=["CPUExecutionProvider"])
    with np.load(VALIDATION) as data:
        images, labels = data["images"][::5], data["labels"][::5]
    right = [int(session.run(None, {"image": images[i : i + 1]})[0].argmax() == labels[i]) for i in range(100)]
    assert found["evidence"]["right"] == right
    assert found["value"] == sum(right) / 100


def oracle(folder: Path, boxes: np.ndarray, scores: np.ndarray) -> Path:
    """A detector that answers the same for every picture. boxes [4, N], scores [C, N]."""
    nodes = [
        helper.make_node("ReduceMin", ["images"], ["low"], name="a", keepdims=0),
        helper.make_node("Mul", ["low", "zero"], ["none"], name="b"),
        helper.make_node("Add", ["b", "none"], ["boxes"], name="c"),
        helper.make_node("Add", ["s", "none"], ["scores"], name="d"),
    ]
    values = {
        "zero": np.array(0, np.float32),
        "b": boxes[None].astype(np.float32),
        "s": scores[None].astype(np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "oracle",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 640, 640])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, *boxes.shape]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, *scores.shape]),
        ],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "o.onnx")
    return folder / "o.onnx"


def one_picture(folder: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A real picture with digits, letterboxed, and the boxes and classes of its labels in the 640 frame."""
    labels = json.loads((PICTURES / "labels.json").read_text())
    picture = next(entry for entry in labels["images"] if entry["id"] in {a["image_id"] for a in labels["annotations"]})
    mine = [entry for entry in labels["annotations"] if entry["image_id"] == picture["id"]]
    ratio = 640 / max(picture["width"], picture["height"])
    width, height = round(picture["width"] * ratio), round(picture["height"] * ratio)
    left, top = (640 - width) // 2, (640 - height) // 2
    boxes = []
    for x, y, w, h in (entry["bbox"] for entry in mine):
        sx, sy = width / picture["width"], height / picture["height"]
        boxes.append([(x + w / 2) * sx + left, (y + h / 2) * sy + top, w * sx, h * sy])
    graph = inputs_only(images=((1, 3, 640, 640), "float32"))
    examples = [{"": PICTURES / picture["file_name"]}]
    build(examples, graph, request(PRESETS["yolo_640"]), folder / "samples.npz")
    return folder / "samples.npz", np.array(boxes).T, np.array([entry["category_id"] for entry in mine])


def test_boxes_of_the_letterboxed_frame_meet_the_labels_of_the_picture(tmp_path: Path) -> None:
    samples, boxes, classes = one_picture(tmp_path)
    scores = np.eye(10)[classes].T * 0.9
    for shift, value in ((0.0, 1.0), (300.0, 0.0)):
        moved = boxes + np.array([[shift], [0], [0], [0]])
        inputs = {"model": oracle(tmp_path, moved, scores), "samples": samples, "labels": [PICTURES / "labels.json"]}
        measure_product.run(job(tmp_path, {"metric": "coco_map"}, ("figures",), **inputs))
        found = json.loads((tmp_path / "figures").read_text())
        assert found["figures"]["map50"] == pytest.approx(value)
        assert found["figures"]["map"] >= value * 0.99


def test_labels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    samples = validation_set(tmp_path, 5)
    (tmp_path / "few.json").write_text(json.dumps({"other.png": 3}))
    np.savez(tmp_path / "few.npz", labels=np.arange(3))
    np.savez(tmp_path / "floats.npz", labels=np.zeros(500))
    for labels in ([], [tmp_path / "few.json"], [tmp_path / "few.npz"], [tmp_path / "floats.npz"]):
        ports = {"model": MODEL, "samples": samples, "labels": labels}
        with pytest.raises(RecipeError):
            measure_product.run(job(tmp_path, {"metric": "top1"}, ("figures",), **ports))
    ports = {"model": MODEL, "samples": samples, "labels": [VALIDATION]}
    with pytest.raises(RecipeError):
        measure_product.run(job(tmp_path, {"metric": "top2"}, ("figures",), **ports))
