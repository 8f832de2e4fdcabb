"""Decoding: what is honoured, converted and refused, with the file named."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from npubake.calibration.images import decode_image
from npubake.errors import RecipeError


def picture(height: int = 12, width: int = 20, channels: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(3).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def refusal(data: bytes, channels: int = 3) -> str:
    with pytest.raises(RecipeError) as caught:
        decode_image(data, name="folder/x.png", channels=channels)
    (fault,) = caught.value.faults
    assert fault.where == "folder/x.png"
    return fault.what


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})])
def test_lossless_files_come_back_as_their_pixels(kind: str, options: dict[str, Any]) -> None:
    pixels = picture()
    assert np.array_equal(decode_image(encoded(Image.fromarray(pixels), kind, **options), name="a", channels=3), pixels)


def test_grey_pictures_have_one_channel() -> None:
    pixels = picture(channels=1)
    found = decode_image(encoded(Image.fromarray(pixels[:, :, 0])), name="a", channels=1)
    assert np.array_equal(found, pixels)


@pytest.mark.parametrize(
    ("orientation", "turned"),
    [
        (1, lambda p: p),
        (2, lambda p: p[:, ::-1]),
        (3, lambda p: p[::-1, ::-1]),
        (6, lambda p: np.rot90(p, -1)),
        (8, lambda p: np.rot90(p, 1)),
    ],
)
def test_the_exif_orientation_is_honoured(orientation: int, turned: Any) -> None:
    pixels = picture()
    exif = Image.Exif()
    exif[274] = orientation
    found = decode_image(encoded(Image.fromarray(pixels), exif=exif), name="a", channels=3)
    assert np.array_equal(found, turned(pixels))


def test_a_palette_is_looked_up() -> None:
    indices = np.arange(24, dtype=np.uint8).reshape(4, 6)
    image = Image.fromarray(indices).convert("P")
    colours = picture(256, 1).reshape(-1)
    image.putpalette(colours.tolist())
    found = decode_image(encoded(image), name="a", channels=3)
    assert np.array_equal(found, colours.reshape(256, 3)[np.asarray(image)])


def test_a_palette_with_transparency_is_refused() -> None:
    image = Image.fromarray(picture()[:, :, 0]).convert("P")
    assert "alpha" in refusal(encoded(image, transparency=0))


@pytest.mark.parametrize(
    ("mode", "kind", "word"),
    [
        ("RGBA", "PNG", "alpha"),
        ("LA", "PNG", "alpha"),
        ("CMYK", "TIFF", "CMYK"),
        ("1", "PNG", "one bit"),
        ("F", "TIFF", "floats"),
        ("I", "TIFF", "wider"),
        ("I;16", "PNG", "wider"),
        ("L", "PNG", "1 channel"),
    ],
)
def test_other_samples_are_refused(mode: str, kind: str, word: str) -> None:
    grey = Image.fromarray(picture()[:, :, 0])
    image = Image.new("I;16", (8, 8), 700) if mode == "I;16" else (grey if mode == "L" else Image.new(mode, (8, 8)))
    assert word in refusal(encoded(image, kind))


def test_a_colour_picture_in_a_grey_set_is_refused() -> None:
    assert "3 channels" in refusal(encoded(Image.fromarray(picture())), channels=1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(kind: str, kept: float) -> None:
    data = encoded(Image.fromarray(picture(64, 64)), kind)
    assert "corrupt" in refusal(data[: int(len(data) * kept)])


@pytest.mark.parametrize("cut", [1, 2, 5, 20])
def test_a_jpeg_that_lost_its_last_bytes_is_refused(cut: int) -> None:
    data = encoded(Image.fromarray(picture(64, 64)), "JPEG", quality=95)
    assert decode_image(data + b"trailing", name="a", channels=3).shape == (64, 64, 3)
    assert "corrupt" in refusal(data[:-cut])


def png16() -> bytes:
    """A 16-bit RGB PNG of one grey level, written by hand: Pillow writes none."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + struct.pack(">12H", *[40000] * 12) for _ in range(4))
    head = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_samples_that_pillow_would_cut_to_8_bits_are_refused() -> None:
    assert "wider" in refusal(png16())
    assert "wider" in refusal(b"P6 # a comment\n4 4 65535\n" + bytes(96))
    assert decode_image(b"P6\n4 4\n255\n" + bytes(48), name="a", channels=3).shape == (4, 4, 3)


def test_a_transparent_colour_is_refused() -> None:
    assert "alpha" in refusal(encoded(Image.fromarray(picture()), transparency=(1, 2, 3)))


def test_a_damaged_png_is_refused() -> None:
    data = bytearray(encoded(Image.fromarray(picture(64, 64))))
    data[len(data) // 2] ^= 0xFF
    assert "corrupt" in refusal(bytes(data))


@pytest.mark.parametrize("data", [b"", b"not an image", b"\xff\xd8\xff\xe0" + b"\0" * 50])
def test_something_else_is_refused(data: bytes) -> None:
    assert "corrupt" in refusal(data)


def test_an_animation_is_refused() -> None:
    frames = [Image.fromarray(picture()), Image.fromarray(picture()[::-1])]
    assert "frames" in refusal(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert "large" in refusal(encoded(Image.fromarray(picture(12, 15))))


def test_a_tiff_without_its_dimensions_is_refused() -> None:
    data = bytearray(encoded(Image.fromarray(picture()), "TIFF"))
    width_tag = data.index(struct.pack("<HH", 256, 4))  # ImageWidth, a long
    data[width_tag : width_tag + 2] = struct.pack("<H", 254)
    assert "corrupt" in refusal(bytes(data))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_changed_bytes_give_pixels_or_a_refusal(kind: str) -> None:
    whole, choice = encoded(Image.fromarray(picture()), kind), random.Random(5)
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(choice.choice((1, 2, 5))):
            changed[choice.randrange(min(len(changed), 120))] = choice.randrange(256)
        with contextlib.suppress(RecipeError):
            assert decode_image(bytes(changed), name="x", channels=3).dtype == np.uint8
