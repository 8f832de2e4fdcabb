"""The product metric of detectors: pycocotools itself, and our weighted average precision against it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npubake.errors import RecipeError
from npubake.verify.coco import CocoLabels, evaluate
from npubake.verify.detection import Detections
from npubake.verify.evidence import Matches, evidence_from_json
from tests.verify.scenes import Scene, scene


def drawn(made: Scene, draw: list[int]) -> Scene:
    """A set with the drawn pictures, repeated ones under names and ids of their own, next to each other."""
    images, annotations, found = {}, [], []
    for position, index in enumerate(sorted(draw, key=lambda index: made.labels.images[made.names[index]])):
        old = made.labels.images[made.names[index]]
        images[f"copy{position:04d}.jpg"] = position + 1
        annotations += [
            {**entry, "image_id": position + 1} for entry in made.labels.annotations if entry["image_id"] == old
        ]
        found.append(made.found[index])
    labels = replace(made.labels, images=images, annotations=tuple(annotations))
    return Scene(labels=labels, names=tuple(images), found=tuple(found))


@pytest.mark.parametrize("crowd", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_our_average_precision_is_pycocotools_on_the_whole_set(seed: int, crowd: bool) -> None:
    made = scene(seed, crowd=crowd)
    result = evaluate(made.labels, made.names, made.found)
    ours = result.matches.values(np.ones((1, len(made.names)), np.int64))[0]
    assert 0.1 < result.map50 < 1.0
    assert ours == pytest.approx(result.map50, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_weights_stand_for_repeated_pictures(seed: int) -> None:
    made = scene(seed, pictures=15, digits=12)
    matches = evaluate(made.labels, made.names, made.found).matches
    draw = np.random.default_rng(seed).integers(0, 15, 15)
    weights = np.bincount(draw, minlength=15)[None]
    again = drawn(made, draw.tolist())
    repeated = evaluate(again.labels, again.names, again.found)
    assert matches.values(weights)[0] == pytest.approx(repeated.map50, abs=1e-9)


def test_perfect_detections_score_one_and_none_score_zero() -> None:
    made = scene(1)
    perfect, nothing = [], []
    for name in made.names:
        mine = [entry for entry in made.labels.annotations if entry["image_id"] == made.labels.images[name]]
        boxes = np.array([[x, y, x + w, y + h] for x, y, w, h in (entry["bbox"] for entry in mine)]).reshape(-1, 4)
        ids = [number for number, _ in made.labels.categories]
        classes = np.array([ids.index(entry["category_id"]) for entry in mine], np.int64)
        perfect.append(Detections(corners=boxes, scores=np.full(len(mine), 0.9), classes=classes))
        nothing.append(Detections(corners=boxes[:0], scores=np.zeros(0), classes=classes[:0]))
    assert evaluate(made.labels, made.names, perfect).map == pytest.approx(1.0)
    assert evaluate(made.labels, made.names, nothing).map50 == 0.0


def test_evidence_survives_json() -> None:
    made = scene(2)
    matches = evaluate(made.labels, made.names, made.found).matches
    back = evidence_from_json(json.loads(json.dumps(matches.to_json())))
    assert isinstance(back, Matches)
    assert back == matches


def test_classes_follow_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    data = {
        "images": [{"id": 4, "file_name": "sub/a.jpg"}],
        "categories": [{"id": 9, "name": "nine"}, {"id": 2, "name": "two"}],
        "annotations": [{"id": 0, "image_id": 4, "category_id": 9, "bbox": [10, 10, 20, 20]}],
    }
    path.write_text(json.dumps(data))
    labels = CocoLabels.load(path)
    corners = np.array([[10.0, 10.0, 30.0, 30.0]])
    for which, score in ((0, 1.0), (1, 0.0)):
        found = Detections(corners=corners, scores=np.array([0.5]), classes=np.array([which]))
        assert evaluate(labels, ["a.jpg"], [found]).map50 == pytest.approx(score)
    found = Detections(corners=corners, scores=np.array([0.5]), classes=np.array([2]))
    with pytest.raises(RecipeError):
        evaluate(labels, ["a.jpg"], [found])
    with pytest.raises(RecipeError):
        labels.image_ids(["a.jpg", "b.jpg"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"images": 3, "annotations": [], "categories": []}'])
def test_other_files_are_no_labels(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(RecipeError):
        CocoLabels.load(tmp_path / "labels.json")
