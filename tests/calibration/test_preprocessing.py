"""The preprocessing block against fractions, against an independent resampler, and against golden bytes."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.calibration.preprocessing import Geometry, LinearStep, Preprocessing
from npubake.recipe.presets import PRESETS, Resize
from npubake.recipe.presets import Preprocessing as Preset
from tests.calibration.sets import YOLO_32

sizes = st.tuples(st.integers(1, 900), st.integers(1, 900))
IMAGE_PRESETS = [name for name, preset in PRESETS.items() if preset.decode]


def block(preset: Preset) -> Preprocessing:
    made = Preprocessing.from_expanded(preset.expanded())
    assert made is not None
    return made


def gradient(height: int, width: int) -> NDArray[np.uint8]:
    """A picture without a random generator behind it: its bytes are the same for ever."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(x * 7 + y) % 256, (y * 5 + 31) % 256, (x * y) % 256], axis=2).astype(np.uint8)


def triangle(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.float64]:
    """Area-aware bilinear resampling by its definition: a triangle as wide as the reduction, in float64."""
    result = pixels.astype(np.float64)
    for axis, new in enumerate(size):
        old = pixels.shape[axis]
        step = old / new
        reach = max(step, 1.0)
        centres = (np.arange(new) + 0.5) * step
        weights = np.clip(1 - np.abs(np.arange(old) + 0.5 - centres[:, None]) / reach, 0, None)
        weights /= weights.sum(axis=1, keepdims=True)
        result = np.moveaxis(np.tensordot(weights, result, axes=(1, axis)), 0, axis)
    return result


@given(sizes)
def test_a_letterbox_keeps_the_shape_and_stands_in_the_middle(source: tuple[int, int]) -> None:
    found = block(PRESETS["yolo_640"]).geometry(source)
    ratio = min(Fraction(640, source[0]), Fraction(640, source[1]))
    for axis in (0, 1):
        assert abs(found.resized[axis] - source[axis] * ratio) <= Fraction(1, 2) or found.resized[axis] == 1
        before, after = found.offset[axis], 640 - found.resized[axis] - found.offset[axis]
        assert after - before in (0, 1)
    assert 640 in found.resized
    assert found.frame == (640, 640)


def test_a_letterbox_is_the_resized_picture_between_bars() -> None:
    pixels, preset = gradient(50, 75), block(YOLO_32)
    framed, geometry = preset.spatial(pixels)
    assert geometry == Geometry(source=(50, 75), resized=(21, 32), offset=(5, 0), frame=(32, 32))
    assert np.all(framed[:5] == 114)
    assert np.all(framed[26:] == 114)
    assert np.abs(framed[5:26] - triangle(pixels, (21, 32))).max() <= 1.0


def test_resize_and_crop_agree_with_resampling_by_definition() -> None:
    pixels = gradient(300, 410)
    framed, geometry = block(PRESETS["classification_torchvision"]).spatial(pixels)
    assert geometry == Geometry(source=(300, 410), resized=(256, 256), offset=(-16, -16), frame=(224, 224))
    assert np.abs(framed - triangle(pixels, (256, 256))[16:240, 16:240]).max() <= 1.0


def test_the_shorter_side_decides() -> None:
    preset = block(
        Preset(name="s", decode="pillow", channels="rgb", resize=Resize(kind="resize_shorter", size=(256, 256)))
    )
    assert preset.geometry((300, 401)).frame == (256, 342)  # floor(256 * 401 / 300)
    assert preset.geometry((401, 300)).frame == (342, 256)


@given(sizes, st.floats(0, 1), st.floats(0, 1))
def test_boxes_return_to_where_they_came_from(source: tuple[int, int], u: float, v: float) -> None:
    geometry = block(PRESETS["yolo_640"]).geometry(source)
    x, y = u * source[1], v * source[0]
    there = [
        x * geometry.resized[1] / source[1] + geometry.offset[1],
        y * geometry.resized[0] / source[0] + geometry.offset[0],
    ]
    back = geometry.to_source(np.array([[*there, *there]]))
    assert np.allclose(back, [[x, y, x, y]], rtol=1e-9, atol=1e-6)


def test_boxes_are_cut_to_the_picture() -> None:
    geometry = Geometry(source=(50, 75), resized=(21, 32), offset=(5, 0), frame=(32, 32))
    assert geometry.to_source(np.array([[-9.0, 0.0, 99.0, 32.0]])).tolist() == [[0.0, 0.0, 75.0, 50.0]]


@pytest.mark.parametrize("channels", ["rgb", "bgr"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_linear_step_is_within_two_roundings_of_the_exact_value(channels: Any, layout: Any) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pixels = np.stack([np.arange(256), np.arange(256)[::-1], np.full(256, 77)], axis=1).astype(np.uint8)[None]
    step = LinearStep(channels=channels, divide_by=255.0, mean=mean, std=std, layout=layout)
    found = step.apply(pixels)
    assert found.shape == ((1, 3, 1, 256) if layout == "NCHW" else (1, 1, 256, 3))
    for column in (0, 1, 100, 255):
        for channel in range(3):
            source = channel if channels == "rgb" else 2 - channel
            exact = (Fraction(int(pixels[0, column, source]), 255) - Fraction(mean[channel])) / Fraction(std[channel])
            value = found[0, channel, 0, column] if layout == "NCHW" else found[0, 0, column, channel]
            assert abs(Fraction(float(value)) - exact) <= Fraction(1, 2**21)


def test_dividing_alone_is_correctly_rounded() -> None:
    step = LinearStep(channels="gray", divide_by=255.0, mean=(0.0,), std=(1.0,), layout="NCHW")
    found = step.apply(np.arange(256, dtype=np.uint8).reshape(16, 16, 1)).reshape(-1)
    for value, pixel in zip(found, range(256), strict=True):
        gap = abs(Fraction(float(value)) - Fraction(pixel, 255))
        for neighbour in (np.nextafter(value, np.float32(9)), np.nextafter(value, np.float32(-9))):
            assert gap <= abs(Fraction(float(neighbour)) - Fraction(pixel, 255))


GOLDEN = {
    "classification_torchvision": "00b4c94c98465da33b63c5c8910cd186af67bf462874446c36325bc20cfb081b",
    "yolo_640": "48588d490d18d62b099f6424f85f53575dbce3c93dacef40757fdca57f34c227",
    "yolo_1280": "a3500b14a20f360a9f28b0309c77f1ad7715f982152e51593e78f2bc162fc948",
}


@pytest.mark.parametrize("name", IMAGE_PRESETS)
def test_golden_bytes(name: str) -> None:
    """Other bytes mean another preset: raise its version, or pin the decoder that changed."""
    pixels, preset = gradient(333, 500), block(PRESETS[name])
    stored = preset.spatial(pixels)[0]
    fed = preset.linear.apply(stored)
    digest = hashlib.sha256(stored.tobytes() + fed.astype("<f4").tobytes()).hexdigest()
    assert digest == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(set(PRESETS) - set(IMAGE_PRESETS)))
def test_presets_without_images_take_prepared_tensors(name: str) -> None:
    assert Preprocessing.from_expanded(PRESETS[name].expanded()) is None
