"""What a data set is refused for, each by its own message and all at once; and what passes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from npubake.calibration.refusals import SHOWN
from npubake.calibration.samples import SampleSet
from npubake.errors import BuildError, Fault, RecipeError
from npubake.recipe.presets import Preprocessing
from tests.calibration.sets import PREPARED, YOLO_32, build, inputs_only, request, save_arrays

IMAGES = inputs_only(images=((1, 3, 32, 32), "float32"))
VECTOR = inputs_only(x=((1, 2, 5), "float32"))


def photograph(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save_images(folder: Path, images: Sequence[NDArray[np.uint8]], suffix: str = ".png") -> list[dict[str, Path]]:
    examples = []
    for index, pixels in enumerate(images):
        path = folder / f"{index:03d}{suffix}"
        Image.fromarray(pixels.squeeze()).save(path)
        examples.append({"": path})
    return examples


def faults(folder: Path, examples: Any, graph: Any = IMAGES, **asked: Any) -> tuple[Fault, ...]:
    with pytest.raises(BuildError) as caught:
        build(examples, graph, request(**asked), folder / "set.npz")
    return caught.value.faults


def letterboxed(seed: int) -> NDArray[np.uint8]:
    framed = np.full((32, 32, 3), 114, np.uint8)
    framed[6:26] = photograph(20, 32, seed)
    return framed


def test_pictures_are_stored_as_pixels_and_read_as_the_model_is_fed(tmp_path: Path) -> None:
    head = build(save_images(tmp_path, [photograph(20, 40), photograph(64, 32, 1)]), IMAGES, request(), tmp_path / "s")
    assert [example["sources"]["images"]["name"] for example in head["examples"]] == ["000.png", "001.png"]
    with SampleSet.open(tmp_path / "s") as samples:
        assert samples.count == 2
        assert not samples.random
        stored, fed = samples.read_stored(0)["images"], samples.read(0)["images"]
        assert (stored.shape, stored.dtype.name) == ((32, 32, 3), "uint8")
        assert (fed.shape, fed.dtype.name) == ((1, 3, 32, 32), "float32")
        assert np.array_equal(fed[0], stored.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
        assert samples.geometry(1)["images"].resized == (32, 16)
        assert samples.describe(1) == "example 1 (001.png)"


def test_grey_pictures_of_two_dimensions_pass_a_grey_preset(tmp_path: Path) -> None:
    preset = Preprocessing(name="g", decode="pillow", channels="gray", divide_by=255, input_dtype="uint8")
    graph = inputs_only(image=((1, 1, 8, 9), "float32"))
    pixels = photograph(8, 9)[:, :, 0]
    examples = [*save_arrays(tmp_path, [pixels]), *save_images(tmp_path, [pixels])]
    build(examples, graph, request(preset), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        for index in (0, 1):
            assert np.array_equal(samples.read(index)["image"][0, 0], pixels.astype(np.float32) / np.float32(255))
            assert samples.read_stored(index)["image"].shape == (8, 9, 1)


def test_the_order_of_channels_is_part_of_the_linear_step(tmp_path: Path) -> None:
    preset = Preprocessing(name="b", decode="pillow", channels="bgr", input_dtype="uint8", layout="NHWC")
    graph = inputs_only(image=((1, 8, 9, 3), "float32"))
    build(save_images(tmp_path, [photograph(8, 9)]), graph, request(preset), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        assert np.array_equal(samples.read_stored(0)["image"], photograph(8, 9))
        assert np.array_equal(samples.read(0)["image"][0], photograph(8, 9)[:, :, ::-1].astype(np.float32))


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    examples = save_images(tmp_path, [photograph(9, 9, seed) for seed in range(6)])
    examples[1][""].write_bytes(b"nothing")
    examples[3][""].write_bytes(examples[3][""].read_bytes()[:90])
    Image.fromarray(photograph(9, 9)[:, :, 0]).save(examples[5][""])
    found = faults(tmp_path, examples)
    assert [fault.where for fault in found] == ["001.png", "003.png", "005.png"]
    assert all(fault.hint for fault in found)
    assert "1 channel" in found[2].what


def test_a_long_list_of_faults_ends_with_a_count(tmp_path: Path) -> None:
    examples = save_images(tmp_path, [photograph(9, 9)] * (SHOWN + 7))
    for example in examples:
        example[""].write_bytes(b"nothing")
    found = faults(tmp_path, examples)
    assert len(found) == SHOWN + 1
    assert "7 more" in found[-1].what


def test_letterboxed_pictures_are_refused_unless_they_are_meant(tmp_path: Path) -> None:
    examples = save_images(tmp_path, [letterboxed(0), letterboxed(1), photograph(32, 32, 2)])
    (fault,) = faults(tmp_path, examples)
    assert "letterboxed already" in fault.what
    build(examples, IMAGES, request(letterboxed="allowed"), tmp_path / "s")


def test_letterboxed_jpegs_are_seen(tmp_path: Path) -> None:
    smooth = [np.full((32, 32, 3), 114, np.uint8) for _ in range(3)]
    for level, pixels in enumerate(smooth):
        pixels[:, 8:24] = 60 * level + 40
    (fault,) = faults(tmp_path, save_images(tmp_path, smooth, ".jpg"))
    assert "letterboxed already" in fault.what


@pytest.mark.parametrize(
    "images",
    [
        [photograph(32, 32, seed) for seed in range(4)],  # legal square photographs
        [letterboxed(0), photograph(32, 32, 1)],  # half of them: not most
        [letterboxed(0), letterboxed(1), photograph(20, 32, 2)],  # not all of the preset's size
    ],
)
def test_square_photographs_pass(tmp_path: Path, images: list[NDArray[np.uint8]]) -> None:
    assert len(build(save_images(tmp_path, images), IMAGES, request(), tmp_path / "s")["examples"]) == len(images)


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (photograph(9, 9).astype(np.float32) / 255, "float32 (0 to 1) where uint8"),
        (photograph(9, 9).astype(np.int64), "int64"),
        (photograph(9, 9)[None].repeat(2, 0), "batch of 2"),
        (photograph(9, 9).transpose(2, 0, 1), "channels, height, width"),
        (photograph(9, 9)[:, :, :1], "1 channels"),
        (photograph(9, 9)[:, :, 0], "shape (9, 9)"),
    ],
)
def test_arrays_that_are_no_pixels(tmp_path: Path, array: NDArray[Any], word: str) -> None:
    (fault,) = faults(tmp_path, save_arrays(tmp_path, [photograph(9, 9), array]))
    assert fault.where == "001.npy"
    assert word in fault.what


def test_values_cast_to_uint8_are_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, save_arrays(tmp_path, [photograph(9, 9) % 2] * 2))
    assert "normalised values" in fault.what


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.zeros((2, 5), np.uint8), "uint8 where a prepared float32"),
        (np.zeros((2, 5), np.float64), "float64 where a prepared float32"),
        (np.zeros((4, 2, 5), np.float32), "batch of 4"),
        (np.zeros((5, 2), np.float32), "shape (5, 2)"),
        (np.full((2, 5), np.nan, np.float32), "holds NaN"),
        (np.array([[0, 1, 2, 3, np.inf]] * 2, np.float32), "holds Inf"),
        (np.array([{}] * 2), "pickled"),
    ],
)
def test_prepared_tensors_that_do_not_fit(tmp_path: Path, array: NDArray[Any], word: str) -> None:
    examples = save_arrays(tmp_path, [np.zeros((2, 5), np.float32), array])
    (fault,) = faults(tmp_path, examples, VECTOR, preset=PREPARED)
    assert fault.where == "001.npy"
    assert word in fault.what
    assert array.dtype == object or "'x'" in fault.what


def test_channels_last_is_named(tmp_path: Path) -> None:
    examples = save_arrays(tmp_path, [np.zeros((32, 32, 3), np.float32)])
    (fault,) = faults(tmp_path, examples, IMAGES, preset=PREPARED)
    assert "transpose(2, 0, 1)" in fault.hint


@pytest.mark.parametrize("data", [b"", pickle.dumps([1.0]), b"\x93NUMPY\x01\x00", b"text"])
def test_files_that_are_no_arrays(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    (fault,) = faults(tmp_path, [{"": tmp_path / "a.npy"}], VECTOR, preset=PREPARED)
    assert fault.where == "a.npy"


def test_a_truncated_array_is_refused(tmp_path: Path) -> None:
    examples = save_arrays(tmp_path, [np.zeros((2, 5), np.float32)])
    examples[0][""].write_bytes(examples[0][""].read_bytes()[:-3])
    (fault,) = faults(tmp_path, examples, VECTOR, preset=PREPARED)
    assert "truncated" in fault.what


def test_a_batch_of_one_may_be_left_out_or_given(tmp_path: Path) -> None:
    arrays = [np.arange(10, dtype=np.float32).reshape(shape) for shape in ((2, 5), (1, 2, 5))]
    build(save_arrays(tmp_path, arrays), VECTOR, request(PREPARED), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        assert np.array_equal(samples.read(0)["x"], samples.read(1)["x"])
        assert samples.read(0)["x"].shape == (1, 2, 5)


def test_a_stack_gives_its_rows_and_its_labels_stay_out(tmp_path: Path) -> None:
    rows = np.arange(120, dtype=np.float32).reshape(12, 2, 5)
    np.savez(tmp_path / "v.npz", anything=rows, labels=np.arange(12))
    build([{"": tmp_path / "v.npz"}], VECTOR, request(PREPARED, count=4), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        assert [samples.sources(index)["x"].item for index in range(4)] == [0, 3, 6, 9]
        assert np.array_equal(samples.read(3)["x"][0], rows[9])
        assert samples.describe(3) == "example 3 (v.npz[9])"


def test_inputs_of_one_example_stay_together(tmp_path: Path) -> None:
    graph = inputs_only(a=((1, 3), "float32"), b=((1, 2), "int64"))
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4).reshape(2, 2)
    np.savez(tmp_path / "v.npz", a=a, b=b)
    build([{"": tmp_path / "v.npz"}], graph, request(PREPARED), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        fed = samples.read(1)
        assert np.array_equal(fed["a"], a[1:])
        assert np.array_equal(fed["b"], b[1:])
        assert fed["b"].dtype == np.int64


@pytest.mark.parametrize("count", [None, 3])
def test_stacks_of_different_lengths_are_refused(tmp_path: Path, count: int | None) -> None:
    graph = inputs_only(a=((1, 3), "float32"), b=((1, 2), "float32"))
    np.savez(tmp_path / "v.npz", a=np.zeros((4, 3), np.float32), b=np.zeros((3, 2), np.float32))
    (fault,) = faults(tmp_path, [{"": tmp_path / "v.npz"}], graph, preset=PREPARED, count=count)
    assert "3, 4" in fault.what


def test_an_example_without_one_of_its_inputs_is_refused(tmp_path: Path) -> None:
    graph = inputs_only(a=((1, 3), "float32"), b=((1, 2), "float32"))
    np.save(tmp_path / "a.npy", np.zeros((1, 3), np.float32))
    found = faults(tmp_path, [{"a": tmp_path / "a.npy"}, {"c": tmp_path / "a.npy"}], graph, preset=PREPARED)
    assert "nothing for the input 'b'" in found[0].what
    assert "no input 'c'" in found[1].what


def test_a_picture_beside_a_tensor(tmp_path: Path) -> None:
    graph = inputs_only(images=((1, 3, 32, 32), "float32"), extra=((1, 2), "float32"))
    image = save_images(tmp_path, [photograph(20, 30)])[0][""]
    np.save(tmp_path / "e.npy", np.array([[1.0, 2.0]], np.float32))
    build([{"images": image, "extra": tmp_path / "e.npy"}], graph, request(), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        assert samples.read(0)["extra"].tolist() == [[1.0, 2.0]]
        assert list(samples.linear) == ["images"]


def test_a_picture_for_a_prepared_input_is_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, save_images(tmp_path, [photograph(9, 9)]), IMAGES, preset=PREPARED)
    assert "prepared" in fault.what


def test_a_preset_of_another_size_is_refused(tmp_path: Path) -> None:
    graph = inputs_only(images=((1, 3, 64, 48), "float32"))
    (fault,) = faults(tmp_path, save_images(tmp_path, [photograph(9, 9)]), graph)
    assert "makes 32x32" in fault.what
    assert "needs 48x64" in fault.what


def test_a_preset_that_no_input_takes_is_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, save_images(tmp_path, [photograph(9, 9)]), VECTOR)
    assert "no input of the model takes them" in fault.what


def test_a_crop_larger_than_the_picture_is_refused(tmp_path: Path) -> None:
    preset = Preprocessing(name="c", decode="pillow", channels="rgb", crop=(32, 32), input_dtype="uint8")
    (fault,) = faults(tmp_path, save_images(tmp_path, [photograph(40, 20)]), IMAGES, preset=preset)
    assert "smaller than the preset's crop" in fault.what


def test_too_few_examples_are_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, save_images(tmp_path, [photograph(9, 9)]), count=2)
    assert "1 examples where 2" in fault.what


def test_no_data_is_refused_and_random_data_is_for_smoke_only(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, [])
    assert "smoke" in fault.hint
    for name in ("a", "b"):
        head = build([], IMAGES, request(YOLO_32, purpose="smoke", count=3), tmp_path / name)
    assert head["random"] is True
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with SampleSet.open(tmp_path / "a") as samples:
        assert samples.random
        assert samples.read(2)["images"].shape == (1, 3, 32, 32)


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(b"0")
    (fault,) = faults(tmp_path, [{"": tmp_path / "a.raw"}])
    assert "'.raw'" in fault.what or ".raw" in fault.what


def test_a_torch_file_needs_torch_or_gives_its_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        path.write_bytes(b"PK")
        (fault,) = faults(tmp_path, [{"": path}], VECTOR, preset=PREPARED)
        assert "torch is needed" in fault.what
        return
    torch.save(torch.arange(10, dtype=torch.float32).reshape(2, 5), path)
    build([{"": path}], VECTOR, request(PREPARED), tmp_path / "s")
    with SampleSet.open(tmp_path / "s") as samples:
        assert samples.read(0)["x"].reshape(-1).tolist() == list(range(10))
    torch.save({"x": object()}, path)
    with pytest.raises(RecipeError):
        build([{"": path}], VECTOR, request(PREPARED), tmp_path / "t")


def test_the_same_set_has_the_same_bytes_anywhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        examples = save_images(tmp_path / name, [photograph(20, 40), photograph(30, 30, 1)])
        build(examples, IMAGES, request(), tmp_path / name / "set.npz")
    assert (tmp_path / "one" / "set.npz").read_bytes() == (tmp_path / "two" / "set.npz").read_bytes()
