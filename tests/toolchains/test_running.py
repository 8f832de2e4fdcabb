"""Files fed to a built artifact: an image equals its pixels, a bundle knows its preprocessing, mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npubake.calibration.samples import SampleSet
from npubake.errors import StageError, UsageError
from npubake.recipe.presets import Preprocessing, Resize
from npubake.toolchains.reference.executor import run_package
from npubake.toolchains.reference.running import load_deployable, run_files
from tests.toolchains.digits import GRAY, J6P, Road, calibrated, compiled, packaged, quantised, verified

PRESET = Preprocessing(
    name="custom", decode="pillow", channels="gray", resize=Resize(kind="resize_exact", size=(28, 28)),
    divide_by=255, input_dtype="uint8",
).expanded()  # fmt: skip


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Road]:
    """The same model with gray bytes and with floats as its input."""
    made = {}
    for name, runtime in (("gray", GRAY), ("float", {})):
        road = quantised(calibrated().branch(tmp_path_factory.mktemp(name)), {"runtime_input": runtime})
        made[name] = packaged(verified(compiled(road, {"platform": J6P}), {"count": 1}))
    return made


def _pixels(road: Road) -> Any:
    with SampleSet.open(road.files["samples"]) as samples:
        return samples.read_stored(5)["image"]


@pytest.mark.parametrize("kind", ["gray", "float"])
def test_an_image_file_equals_its_pixels(roads: dict[str, Road], kind: str, tmp_path: Path) -> None:
    pixels = _pixels(roads[kind])
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "seven.png")
    path = roads[kind].files["compile.deployable"]
    got = run_files(load_deployable(path, PRESET), [("", tmp_path / "seven.png")], threads=2)["logits"]
    fed = pixels if kind == "gray" else (pixels.astype(np.float32) / np.float32(255)).reshape(1, 1, 28, 28)
    np.testing.assert_array_equal(got, run_package(path, {"image": fed})["logits"])
    np.save(tmp_path / "fed.npy", fed)
    np.savez(tmp_path / "fed.npz", image=fed)
    for file in ("fed.npy", "fed.npz"):
        np.testing.assert_array_equal(run_files(load_deployable(path), [("", tmp_path / file)])["logits"], got)


def test_a_larger_image_is_preprocessed(roads: dict[str, Road], tmp_path: Path) -> None:
    pixels = _pixels(roads["gray"])
    Image.fromarray(pixels[:, :, 0].repeat(4, axis=0).repeat(4, axis=1)).save(tmp_path / "big.png")
    deployable = load_deployable(roads["gray"].files["compile.deployable"], PRESET)
    got = run_files(deployable, [("image", tmp_path / "big.png")])["logits"]
    want = run_package(roads["gray"].files["compile.deployable"], {"image": pixels})["logits"]
    assert got.argmax() == want.argmax()


def test_bundle_is_taken_as_well(roads: dict[str, Road], tmp_path: Path) -> None:
    """The fixture's samples are prepared without a preset, and the bundle says so instead of guessing one."""
    path = roads["gray"].files["package.bundle"]
    np.save(tmp_path / "fed.npy", _pixels(roads["gray"]))
    got = run_files(load_deployable(path), [("", tmp_path / "fed.npy")])["logits"]
    assert got.shape == (1, 10)
    assert load_deployable(path).preset is None
    assert load_deployable(path, PRESET).preset == PRESET
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StageError):
        load_deployable(tmp_path / "cut")


def test_mistakes_are_all_named(roads: dict[str, Road], tmp_path: Path) -> None:
    deployable = load_deployable(roads["gray"].files["compile.deployable"])
    Image.new("L", (28, 28)).save(tmp_path / "a.png")
    (tmp_path / "b.npy").write_bytes(b"nothing")
    (tmp_path / "c.txt").write_text("x", encoding="utf-8")
    np.save(tmp_path / "d.npy", np.zeros((28, 28, 1), np.uint8))
    files = [("", tmp_path / "a.png"), ("", tmp_path / "b.npy"), ("", tmp_path / "c.txt"),
             ("picture", tmp_path / "d.npy"), ("", tmp_path / "gone.png")]  # fmt: skip
    with pytest.raises(UsageError) as caught:
        run_files(deployable, files)
    found = [Path(fault.where).name for fault in caught.value.faults]
    assert found == ["a.png", "b.npy", "c.txt", "d.npy", "gone.png"]
    np.save(tmp_path / "e.npy", np.zeros((28, 28, 1), np.float32))
    with pytest.raises(StageError):
        run_files(deployable, [("", tmp_path / "e.npy")])
