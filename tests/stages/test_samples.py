"""Stage ``samples``: the set, the archive that travels, and the same bytes every time."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npubake.calibration.samples import SampleSet
from npubake.errors import RecipeError
from npubake.recipe.presets import PRESETS
from npubake.stages import samples
from tests.calibration.sets import YOLO_32, inputs_only, job, listing

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, paths: list[Path], graph: Any, **params: Any) -> None:
    folder.mkdir(exist_ok=True)
    data, files = listing([{"": path} for path in paths])
    (folder / "listing.json").write_text(json.dumps(data))
    graph.save(folder / "graph.json")
    inputs = {"listing": folder / "listing.json", "files": files, "graph": folder / "graph.json"}
    samples.run(job(folder, params, ("samples", "archive"), **inputs))


def test_the_archive_holds_the_sources_that_were_used(tmp_path: Path) -> None:
    paths = []
    for index in range(4):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(np.full((10, 20, 3), 40 * index + 9, np.uint8)).save(paths[-1])
    graph = inputs_only(images=((1, 3, 32, 32), "float32"))
    for name in ("a", "b"):
        run(tmp_path / name, paths, graph, preset=YOLO_32.expanded(), count=2)
    for port in ("samples", "archive"):
        assert (tmp_path / "a" / port).read_bytes() == (tmp_path / "b" / port).read_bytes()
    with zipfile.ZipFile(tmp_path / "a" / "archive") as archive:
        assert archive.namelist() == ["sources/00000-0.png", "sources/00001-2.png", "samples.json"]
        assert archive.read("sources/00001-2.png") == paths[2].read_bytes()
        head = json.loads(archive.read("samples.json"))
    assert head["preset"]["name"] == "yolo_32"
    assert head["archived"]["2.png"] == "sources/00001-2.png"
    assert head["examples"][1]["geometry"]["images"]["resized"] == [16, 32]


def test_real_pictures_of_the_detector(tmp_path: Path) -> None:
    paths = sorted((ROOT / "data" / "digits" / "calibration").glob("*.jpg"))
    graph = inputs_only(images=((1, 3, 640, 640), "float32"))
    run(tmp_path, paths, graph, preset=PRESETS["yolo_640"].expanded(), count=3)
    with SampleSet.open(tmp_path / "samples") as found:
        assert found.count == 3
        value = found.read(1)["images"]
        geometry = found.geometry(1)["images"]
    with Image.open(paths[len(paths) // 3]) as image:
        assert geometry.source == (image.height, image.width)
    assert value.min() >= 0.0
    assert value.max() <= 1.0
    assert value[0, 0, 0, 0] == np.float32(114) / np.float32(255)


def test_smoke_data_are_marked(tmp_path: Path) -> None:
    graph = inputs_only(images=((1, 3, 32, 32), "float32"))
    run(tmp_path, [], graph, preset=YOLO_32.expanded(), count=2, purpose="smoke")
    with SampleSet.open(tmp_path / "samples") as found:
        assert found.random
        assert found.count == 2


def test_a_corrupt_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(RecipeError) as caught:
        run(tmp_path, [tmp_path / "broken.jpg"], inputs_only(x=((1, 3, 32, 32), "float32")), preset=YOLO_32.expanded())
    assert caught.value.faults[0].where == "broken.jpg"
