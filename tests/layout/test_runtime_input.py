"""Encoding and decoding against exact BT.601 formulas, Pillow's own YCbCr, and round trips."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from npubake.errors import StageError
from npubake.fixedpoint.colour import BT601, RuntimeInput
from npubake.layout.runtime_input import decode, encode, rgb_to_yuv, yuv_to_rgb

KR, KB = Fraction(299, 1000), Fraction(114, 1000)
KG = 1 - KR - KB


def exact_yuv(red: int, green: int, blue: int, video: bool) -> tuple[Fraction, Fraction, Fraction]:
    """ITU-R BT.601-7: E'y = Kr R + Kg G + Kb B, Cb = (B - Y) / (2 - 2 Kb), Cr = (R - Y) / (2 - 2 Kr)."""
    luma = KR * red + KG * green + KB * blue
    cb, cr = (blue - luma) / (2 - 2 * KB), (red - luma) / (2 - 2 * KR)
    if video:
        return 16 + luma * Fraction(219, 255), 128 + cb * Fraction(224, 255), 128 + cr * Fraction(224, 255)
    return luma, 128 + cb, 128 + cr


@given(st.tuples(*[st.integers(0, 255)] * 3), st.sampled_from(["full", "video"]))
@settings(max_examples=300, deadline=None)
def test_rgb_to_yuv_is_the_formula_rounded(rgb: tuple[int, int, int], colour_range: Any) -> None:
    codes = rgb_to_yuv(np.array(rgb, dtype=np.uint8), colour_range, bits=0)
    for code, exact in zip(codes, exact_yuv(*rgb, video=colour_range == "video"), strict=True):
        assert abs(int(code) - min(max(exact, Fraction(0)), Fraction(255))) <= Fraction(1, 2) + Fraction(1, 40)


@given(st.tuples(*[st.integers(0, 255)] * 3), st.sampled_from(["full", "video"]))
@settings(max_examples=300, deadline=None)
def test_yuv_to_rgb_is_the_formula_rounded(yuv: tuple[int, int, int], colour_range: Any) -> None:
    luma, cb, cr = Fraction(yuv[0]), Fraction(yuv[1] - 128), Fraction(yuv[2] - 128)
    if colour_range == "video":
        luma, cb, cr = (luma - 16) * Fraction(255, 219), cb * Fraction(255, 224), cr * Fraction(255, 224)
    red, blue = luma + (2 - 2 * KR) * cr, luma + (2 - 2 * KB) * cb
    green = (luma - KR * red - KB * blue) / KG
    pixels = yuv_to_rgb(np.array(yuv, dtype=np.uint8), colour_range)
    for code, exact in zip(pixels, (red, green, blue), strict=True):
        assert abs(int(code) - min(max(exact, Fraction(0)), Fraction(255))) <= Fraction(1, 2) + Fraction(1, 40)


def test_coefficients_are_the_nearest_that_keep_grey_grey() -> None:
    for video, numbers in ((False, BT601["full"]), (True, BT601["video"])):
        rows = [exact_yuv(*axis, video=video) for axis in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
        offsets = (numbers.offset, 128, 128)
        for index, offset in enumerate(offsets):
            exact = [(row[index] - offset) * 2**14 for row in rows]
            assert all(abs(a - b) < 1 for a, b in zip(numbers.to_yuv[index], exact, strict=True))
        assert [sum(row) for row in numbers.to_yuv[1:]] == [0, 0]


def test_full_range_is_pillows_ycbcr_within_one() -> None:
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    pillow = np.asarray(Image.fromarray(image).convert("YCbCr"))
    spec = RuntimeInput(name="x", type="yuv444")
    ours = encode(spec, image)["x"][0]
    assert np.abs(ours.astype(int) - pillow).max() <= 1
    planes = [Image.fromarray(plane) for plane in ours.transpose(2, 0, 1)]
    back = np.asarray(Image.merge("YCbCr", planes).convert("RGB"))
    assert np.abs(decode(spec, {"x": ours[None]}).astype(int) - back).max() <= 1


def test_known_colours() -> None:
    """White, black, and BT.601's 100 % colour bars in video range (EBU Tech 3280 gives 81 90 240 for red)."""
    bars = {
        (255, 255, 255): (235, 128, 128),
        (0, 0, 0): (16, 128, 128),
        (255, 0, 0): (81, 90, 240),
        (0, 255, 0): (145, 54, 34),
        (0, 0, 255): (41, 240, 110),
    }
    for rgb, yuv in bars.items():
        assert tuple(rgb_to_yuv(np.array(rgb, dtype=np.uint8), "video", bits=0)) == yuv
    for grey in range(256):
        code = rgb_to_yuv(np.array([grey] * 3, dtype=np.uint8), "full", bits=0)
        assert tuple(code) == (grey, 128, 128)
        assert tuple(yuv_to_rgb(code, "full")) == (grey, grey, grey)


@pytest.mark.parametrize(
    ("kind", "channels"), [("rgb", "rgb"), ("rgb", "bgr"), ("bgr", "rgb"), ("bgr", "bgr"), ("gray", "gray")]
)
def test_lossless_types_come_back(kind: Any, channels: Any) -> None:
    spec = RuntimeInput(name="x", type=kind, channels=channels)
    image = np.random.default_rng(2).integers(0, 256, (5, 7, 1 if kind == "gray" else 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode(spec, encode(spec, image)), image)


def test_rgb_and_bgr_put_the_channels_where_they_say() -> None:
    image = np.array([[[10, 20, 30]]], dtype=np.uint8)  # in the order of the model's channels
    assert encode(RuntimeInput(name="x", type="bgr"), image)["x"].tolist() == [[[[30, 20, 10]]]]
    assert encode(RuntimeInput(name="x", type="bgr", channels="bgr"), image)["x"].tolist() == [[[[10, 20, 30]]]]
    assert encode(RuntimeInput(name="x", type="rgb", channels="bgr"), image)["x"].tolist() == [[[[30, 20, 10]]]]


@pytest.mark.parametrize("colour_range", ["full", "video"])
def test_nv12_planes(colour_range: Any) -> None:
    """Shapes, the exact mean of each block, and the same image for flat blocks as yuv444."""
    image = np.random.default_rng(3).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    spec = RuntimeInput(name="x", type="nv12", range=colour_range)
    planes = encode(spec, image)
    assert {name: plane.shape for name, plane in planes.items()} == {"x_y": (1, 6, 8, 1), "x_uv": (1, 3, 4, 2)}
    for row in range(3):
        for column in range(4):
            block = image[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(4, 3)
            exact = [
                exact_yuv(int(pixel[0]), int(pixel[1]), int(pixel[2]), video=colour_range == "video") for pixel in block
            ]
            for index in (1, 2):
                mean = sum((entry[index] for entry in exact), Fraction(0)) / 4
                assert abs(int(planes["x_uv"][0, row, column, index - 1]) - mean) <= Fraction(1, 2) + Fraction(1, 40)
    flat = image[::2, ::2].repeat(2, axis=0).repeat(2, axis=1)
    whole = RuntimeInput(name="x", type="yuv444", range=colour_range)
    np.testing.assert_array_equal(decode(spec, encode(spec, flat)), decode(whole, encode(whole, flat)))
    assert np.abs(decode(spec, encode(spec, flat)).astype(int) - flat).max() <= 3


def test_featuremap_is_handed_through() -> None:
    spec = RuntimeInput(name="x", type="featuremap")
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 3, 4)
    assert encode(spec, values)["x"] is values
    assert decode(spec, {"x": values}) is values


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 4, 3), np.float32), np.zeros((5, 4, 3), np.uint8), np.zeros((4, 4), np.uint8)]
)
def test_wrong_pixels_are_refused(pixels: Any) -> None:
    with pytest.raises(StageError) as caught:
        encode(RuntimeInput(name="x", type="nv12"), pixels)
    assert caught.value.faults[0].where == "x"


def test_the_document_states_these_coefficients() -> None:
    """docs/deployable.md is what an application's author has; its table is the arithmetic."""
    text = (Path(__file__).resolve().parents[2] / "docs/deployable.md").read_text(encoding="utf-8")
    for name, numbers in BT601.items():
        cells = [
            str(numbers.luma),
            str(numbers.offset),
            *(f"{u}, {v}".replace("-", "\u2212") for u, v in numbers.to_rgb),
        ]
        assert f"| {name} | {' | '.join(cells)} |" in text
