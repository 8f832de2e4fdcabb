"""Labels of validation data: where they are looked for, and what they must hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.recipe.data import list_data
from npubake.recipe.labels import find_labels
from tests.recipe.test_data import digest, files

COCO = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [], "categories": []}


@pytest.mark.parametrize(
    ("metric", "content", "words"),
    [
        ("coco_map", COCO, ""),
        ("coco_map", {**COCO, "images": []}, "no labels for a.jpg"),
        ("coco_map", {"a.jpg": 1}, "no labels that coco_map can read"),
        ("top1", {"a.jpg": 1}, ""),
        ("top1", {"b.jpg": 1}, "no labels for a.jpg"),
        ("top1", {"a.jpg": True}, "no labels that top1 can read"),
        ("top1", COCO, "no labels that top1 can read"),
    ],
)
def test_labels_beside_pictures(tmp_path: Path, metric: str, content: Any, words: str) -> None:
    folder = files(tmp_path, "a.jpg")
    (folder / "labels.json").write_text(json.dumps(content))
    listing = list_data(folder, digest)
    if not words:
        assert find_labels(folder, listing, metric) == (folder / "labels.json",)
        return
    with pytest.raises(RecipeError) as caught:
        find_labels(folder, listing, metric)
    assert words in caught.value.faults[0].what


def test_where_labels_are_looked_for(tmp_path: Path) -> None:
    single = files(tmp_path / "n", "v.npz") / "v.npz"
    assert find_labels(single, list_data(single, digest), "top1") == (single,)
    folder = files(tmp_path / "p", "a.jpg")
    listing = list_data(folder, digest)
    for stated in (None, tmp_path / "lost.json"):
        with pytest.raises(RecipeError):
            find_labels(folder, listing, "top1", stated)
    (tmp_path / "mine.json").write_text('{"a.jpg": 0}')
    assert find_labels(folder, listing, "top1", tmp_path / "mine.json") == (tmp_path / "mine.json",)
