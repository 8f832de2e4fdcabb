"""Data sets by names and digests: every form, every refusal."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.recipe.data import Listing, list_data


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def refused(path: Path) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        list_data(path, digest)
    return [(fault.what, fault.where) for fault in caught.value.faults]


def test_a_folder_is_listed_in_order_without_side_files(tmp_path: Path) -> None:
    folder = files(tmp_path / "d", "b.JPG", "a.png", "c/0.jpg", "labels.json", "README.md", ".hidden", ".git/x.jpg")
    listing = list_data(folder, digest)
    assert listing.kind == "images"
    assert listing.examples == ({"": "a.png"}, {"": "b.JPG"}, {"": "c/0.jpg"})
    assert [file.name for file in listing.files] == ["a.png", "b.JPG", "c/0.jpg"]
    assert listing.files[2].digest == hashlib.sha256(b"c/0.jpg").hexdigest()
    assert listing.paths == tuple(folder / name for name in ("a.png", "b.JPG", "c/0.jpg"))


def test_the_bytes_of_a_listing_do_not_depend_on_where_it_lies(tmp_path: Path) -> None:
    first = list_data(files(tmp_path / "x", "b.npy", "a.npy"), digest)
    second = list_data(files(tmp_path / "y" / "z", "a.npy", "b.npy"), digest)
    assert first.to_json() == second.to_json()
    data = json.loads(first.to_json())
    assert (data["kind"], data["examples"]) == ("npy", [{"": "a.npy"}, {"": "b.npy"}])
    assert Listing.from_json(data) == first


def test_one_npz_is_one_file(tmp_path: Path) -> None:
    folder = files(tmp_path, "v.npz")
    assert list_data(folder / "v.npz", digest).examples == ({"": "v.npz"},)


def test_a_text_list(tmp_path: Path) -> None:
    files(tmp_path, "d/a.jpg", "d/b c.jpg")
    listed = tmp_path / "list.txt"
    listed.write_text("# two\n\nd/b c.jpg\n./d/a.jpg\n")
    listing = list_data(listed, digest)
    assert listing.examples == ({"": "d/b c.jpg"}, {"": "d/a.jpg"})
    assert [file.name for file in listing.files] == ["d/a.jpg", "d/b c.jpg"]


VENDOR = {"info": {"input names": ["ids", "mask"], "input shapes": [[1, -1], [1, -1]]}, "seed": 0}


@pytest.mark.parametrize(
    ("content", "examples"),
    [
        (["a.npy", "b.npy"], ({"": "a.npy"}, {"": "b.npy"})),
        ([{"x": "a.npy", "m": "c.npy"}, {"m": "c.npy", "x": "b.npy"}], None),
        ({**VENDOR, "calib paths": [["a.npy", "c.npy"], ["b.npy", "c.npy"]]}, None),
        ({"info": {}, "calib paths": [["a.npy"], ["b.npy"]]}, ({"": "a.npy"}, {"": "b.npy"})),
    ],
)
def test_json_lists(tmp_path: Path, content: Any, examples: Any) -> None:
    files(tmp_path, "a.npy", "b.npy", "c.npy")
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(content))
    listing = list_data(listed, digest)
    if examples is None:
        image, mask = ("x", "m") if isinstance(content, list) else ("ids", "mask")
        examples = ({image: "a.npy", mask: "c.npy"}, {image: "b.npy", mask: "c.npy"})
    assert listing.examples == examples


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("{}", "not a list of examples"),
        ("[3]", "example 0 is 3"),
        ("[{}]", "example 0 is {}"),
        ('[["a.npy", "b.npy"]]', "example 0 is"),
        ('[{"x": "a.npy"}, {"y": "b.npy"}]', "example 1 names the inputs y"),
        (json.dumps({**VENDOR, "calib paths": [["a.npy"]]}), "1 files for 2 inputs"),
        (json.dumps({**VENDOR, "calib paths": [["a.npy", "b.npy", "a.npy"]]}), "3 files for 2 inputs"),
        ('["lost.npy"]', "'lost.npy' is missing"),
        ("[]", "no data"),
    ],
)
def test_bad_json_lists(tmp_path: Path, content: str, words: str) -> None:
    files(tmp_path, "a.npy", "b.npy")
    (tmp_path / "list.json").write_text(content)
    ((what, _),) = refused(tmp_path / "list.json")
    assert words in what


def test_every_missing_file_of_a_list_is_named_with_its_line(tmp_path: Path) -> None:
    listed = files(tmp_path, "a.jpg") / "list.txt"
    listed.write_text("x.jpg\na.jpg\ny.jpg\n")
    assert [where for _, where in refused(listed)] == [f"{listed}:1", f"{listed}:3"]


def test_a_missing_folder_and_an_empty_one(tmp_path: Path) -> None:
    assert "there is no" in refused(tmp_path / "nowhere")[0][0]
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty") == [("no data", str(tmp_path / "empty"))]


def test_unknown_and_mixed_kinds(tmp_path: Path) -> None:
    folder = files(tmp_path, "a.jpg", "b.npy", "c.raw")
    found = [what for what, _ in refused(folder)]
    assert found == ["a file of unknown kind (.raw)", "mixed kinds of files: 1 images, 1 npy"]


def test_a_list_inside_a_folder_is_told_where_lists_belong(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.png\n")
    with pytest.raises(RecipeError) as caught:
        list_data(tmp_path, lambda path: path.name)
    assert "A list (.txt, .json) is given as the data path itself" in caught.value.faults[0].hint


def test_many_faults_are_counted(tmp_path: Path) -> None:
    found = refused(files(tmp_path, *(f"{index:02}.raw" for index in range(30))))
    assert len(found) == 21
    assert found[-1][0] == "and 10 more faults of the same data"


@pytest.mark.parametrize("name", ["calibration.cache", "int8.txt", "table"])
def test_a_tensorrt_cache_is_recognised(tmp_path: Path, name: str) -> None:
    cache = tmp_path / name
    cache.write_text("TRT-8601-EntropyCalibration2\nimages: 3c010a14\n")
    assert "TensorRT" in refused(cache)[0][0]
    files(tmp_path, "a.jpg")
    if name != "int8.txt":
        assert ["TensorRT" in what for what, _ in refused(tmp_path)] == [True]


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    files(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "c.jpg").write_bytes((tmp_path / "a.jpg").read_bytes())
    assert refused(tmp_path) == [("c.jpg and a.jpg have the same bytes", str(tmp_path))]
    listed = tmp_path / "list.txt"
    listed.write_text("a.jpg\nb.jpg\na.jpg\n")
    assert refused(listed) == [("a.jpg is listed twice", str(listed))]


def broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("name", ["z.png", "z"])
@pytest.mark.parametrize("make", [broken_link, circle, os.mkfifo], ids=["broken link", "circle", "pipe"])
def test_what_is_no_file_is_named_and_never_opened(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    folder = files(tmp_path / "d", "a.png")
    make(folder / name)
    assert [where for _, where in refused(folder)] == [str(folder / name)]
    (tmp_path / "list.txt").write_text(f"d/a.png\nd/{name}\n")
    assert next(where for _, where in refused(tmp_path / "list.txt")) == f"{tmp_path / 'list.txt'}:2"
    assert refused(folder / name)


def test_a_link_to_a_folder_is_not_left_out_in_silence(tmp_path: Path) -> None:
    folder = files(tmp_path / "d", "a.png")
    files(tmp_path / "more", "b.png")
    (folder / "more").symlink_to(tmp_path / "more")
    assert refused(folder) == [("a link to a folder", str(folder / "more"))]
    (tmp_path / "link").symlink_to(tmp_path / "more")
    assert list_data(tmp_path / "link", digest).examples == ({"": "b.png"},)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    folder = files(tmp_path, "a.png")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.png")).write_text("x")
    ((what, _),) = refused(folder)
    assert what == "its name is not UTF-8"


def test_pictures_that_are_called_like_side_files_are_pictures(tmp_path: Path) -> None:
    listing = list_data(files(tmp_path, "labels.png", "sources.jpg", "labels.txt", "labels.npy"), digest)
    assert [file.name for file in listing.files] == ["labels.png", "sources.jpg"]


def test_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / ("x" * 5000))[0][0]


def test_a_list_nested_beyond_reason(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[" * 100_000)
    assert "not JSON" in refused(tmp_path / "list.json")[0][0]
