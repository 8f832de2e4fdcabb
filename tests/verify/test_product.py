"""Labels of examples in every accepted form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npubake.calibration.samples import Source
from npubake.errors import RecipeError
from npubake.verify.product import read_labels


def source(name: str, item: int | None = None) -> Source:
    return Source(name=name, digest="0", item=item)


def save(path: Path, labels: list[int]) -> Path:
    np.savez(path, labels=np.array(labels))
    return path


def test_labels_of_a_stack_are_taken_by_item(tmp_path: Path) -> None:
    path = save(tmp_path / "v.npz", [5, 6, 7, 8])
    assert read_labels([path], [source("v.npz", 3), source("v.npz", 0)]) == [8, 5]


def test_each_of_several_stacks_has_its_own(tmp_path: Path) -> None:
    paths = [save(tmp_path / "1.npz", [1, 2]), save(tmp_path / "2.npz", [3, 4])]
    examples = [source("a.npz", 1), source("b.npz", 0), source("b.npz", 1)]
    assert read_labels(paths, examples) == [2, 3, 4]


def test_labels_by_name_and_labels_in_order(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps({"folder/a.png": 4, "b.png": 9}))
    assert read_labels([tmp_path / "l.json"], [source("b.png"), source("a.png")]) == [9, 4]
    np.save(tmp_path / "l.npy", np.array([2, 3]))
    assert read_labels([tmp_path / "l.npy"], [source("a.npy"), source("b.npy")]) == [2, 3]


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_labels_as_examples(tmp_path: Path, count: int) -> None:
    np.save(tmp_path / "l.npy", np.arange(count))
    with pytest.raises(RecipeError):
        read_labels([tmp_path / "l.npy"], [source("a.npy"), source("b.npy")])


def test_an_item_beyond_the_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        read_labels([save(tmp_path / "v.npz", [1])], [source("v.npz", 0), source("v.npz", 1)])
    with pytest.raises(RecipeError):
        read_labels([save(tmp_path / "v.npz", [1])] * 3, [source("v.npz", 0)])
