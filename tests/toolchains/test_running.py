"""Files fed to a built artifact: an image equals its pixels, rows of stacks are found, mistakes are the person's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npubake.calibration.samples import SampleSet
from npubake.errors import StageError, UsageError
from npubake.toolchains.reference.executor import run_package
from npubake.toolchains.reference.running import load_package, run_files
from tests.toolchains.digits import GRAY, J6P, Road, calibrated, compiled, packaged, quantised, verified


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Road]:
    """The same model with gray bytes, floats, and float inputs whose Quantize is the application's."""
    made = {}
    for name, params in (
        ("gray", {"runtime_input": GRAY}),
        ("float", {}),
        ("peeled", {"remove": {"inputs": ["Quantize"]}}),
    ):
        road = quantised(calibrated().branch(tmp_path_factory.mktemp(name)), params)
        made[name] = packaged(verified(compiled(road, {"platform": J6P}), {"count": 1}))
    return made


def _pixels(road: Road) -> Any:
    with SampleSet.open(road.files["samples"]) as samples:
        return samples.read_stored(5)["image"]


def _fed(road: Road, *words: Path | str, **options: Any) -> Any:
    files = [("", Path(word)) for word in words]
    return run_files(load_package(road.files["compile.deployable"]), files, **options).outputs["logits"]


def _faults(road: Road, *words: Path | str, **options: Any) -> list[str]:
    with pytest.raises(UsageError) as caught:
        _fed(road, *words, **options)
    assert all(fault.hint for fault in caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("kind", ["gray", "float", "peeled"])
def test_an_image_file_equals_its_pixels(roads: dict[str, Road], kind: str, tmp_path: Path) -> None:
    """With nothing but the package: it says how a picture becomes the input."""
    pixels = _pixels(roads[kind])
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "seven.png")
    path = roads[kind].files["compile.deployable"]
    got = _fed(roads[kind], tmp_path / "seven.png", threads=2)
    fed = pixels if kind == "gray" else (pixels.astype(np.float32) / np.float32(255)).reshape(1, 1, 28, 28)
    np.testing.assert_array_equal(got, run_package(path, {"image": fed})["logits"])
    np.save(tmp_path / "fed.npy", fed)
    np.save(tmp_path / "bare.npy", fed.reshape(28, 28) if kind == "gray" else fed[0])
    np.savez(tmp_path / "fed.npz", image=fed)
    np.savez(tmp_path / "other.npz", images=np.stack([fed * 0, fed]), labels=np.array([0, 7]))
    for file in ("fed.npy", "bare.npy", "fed.npz", "other.npz[1]"):
        np.testing.assert_array_equal(_fed(roads[kind], tmp_path / file), got)
    np.testing.assert_array_equal(_fed(roads[kind], tmp_path / "other.npz", example=1), got)


def test_a_larger_image_is_preprocessed(roads: dict[str, Road], tmp_path: Path) -> None:
    pixels = _pixels(roads["gray"])
    Image.fromarray(pixels[:, :, 0].repeat(4, axis=0).repeat(4, axis=1)).save(tmp_path / "big.png")
    got = _fed(roads["gray"], tmp_path / "big.png")
    want = run_package(roads["gray"].files["compile.deployable"], {"image": pixels})["logits"]
    assert got.argmax() == want.argmax()


def test_bundle_is_taken_as_well(roads: dict[str, Road], tmp_path: Path) -> None:
    path = roads["gray"].files["package.bundle"]
    assert load_package(path) == load_package(roads["gray"].files["compile.deployable"])
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StageError):
        load_package(tmp_path / "cut")


def test_mistakes_are_all_named(roads: dict[str, Road], tmp_path: Path) -> None:
    Image.new("RGB", (28, 28)).save(tmp_path / "a.png")
    (tmp_path / "b.npy").write_bytes(b"nothing")
    (tmp_path / "c.txt").write_text("x", encoding="utf-8")
    np.save(tmp_path / "d.npy", np.zeros((28, 28, 1), np.uint8))
    files = [("", tmp_path / "a.png"), ("", tmp_path / "b.npy"), ("", tmp_path / "c.txt"),
             ("picture", tmp_path / "d.npy"), ("", tmp_path / "gone.png")]  # fmt: skip
    with pytest.raises(UsageError) as caught:
        run_files(load_package(roads["gray"].files["compile.deployable"]), files)
    found = [Path(fault.where).name for fault in caught.value.faults]
    assert found == ["a.png", "b.npy", "c.txt", "d.npy", "gone.png"]


def test_arrays_that_do_not_fit_are_the_persons_mistake(roads: dict[str, Road], tmp_path: Path) -> None:
    """Each hint, followed, leads on."""
    road = roads["float"]
    stack = np.zeros((3, 1, 28, 28), np.float32)
    np.save(tmp_path / "stack.npy", stack)
    (fault,) = _faults(road, tmp_path / "stack.npy")
    assert "3 examples" in fault
    assert f"{tmp_path / 'stack.npy'}[0]" in fault
    assert _fed(road, f"{tmp_path / 'stack.npy'}[0]").shape == (1, 10)
    for row in ("stack.npy[3]", "stack.npy[12]"):
        assert "the last row is 2" in _faults(road, tmp_path / row)[0]
    np.save(tmp_path / "double.npy", stack[0].astype(np.float64))
    assert "float32 [1, 1, 28, 28]" in _faults(road, tmp_path / "double.npy")[0]
    np.save(tmp_path / "one.npy", stack[0])
    assert "the last row is 0" in _faults(road, tmp_path / "one.npy", example=2)[0]
    np.savez(tmp_path / "two.npz", first=stack[0], second=stack[0])
    found = _faults(road, tmp_path / "two.npz")
    assert len(found) == 2
    assert all("np.savez" in fault and "NAME=" not in fault for fault in found)


def test_what_is_left_out_is_told(roads: dict[str, Road], tmp_path: Path) -> None:
    package = load_package(roads["float"].files["compile.deployable"])
    np.savez(tmp_path / "x.npz", images=np.zeros((2, 1, 28, 28), np.float32), labels=np.zeros(2, np.int64))
    notes = run_files(package, [("", tmp_path / "x.npz[1]")]).fed.notes
    assert len(notes) == 2
    assert "'images' is taken for the input 'image'" in notes[0]
    assert notes[1].endswith("labels")


def test_a_model_for_prepared_tensors_takes_no_picture(tmp_path: Path) -> None:
    road = compiled(quantised(calibrated().branch(tmp_path), {}), {"platform": J6P, "preset": None})
    assert road.record("compile.contract")["preprocessing"] is None
    Image.new("L", (28, 28)).save(tmp_path / "a.png")
    assert "preprocessing" in _faults(road, tmp_path / "a.png")[0]


def test_a_picture_smaller_than_the_crop_is_refused(tmp_path: Path) -> None:
    from tests.toolchains.digits import PICTURE

    preset = {**PICTURE, "resize": None, "crop": {"size": [28, 28]}}
    road = compiled(quantised(calibrated().branch(tmp_path), {}), {"platform": J6P, "preset": preset})
    Image.new("L", (20, 40)).save(tmp_path / "a.png")
    assert "crop" in _faults(road, tmp_path / "a.png")[0]
