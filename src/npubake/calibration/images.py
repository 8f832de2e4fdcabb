"""calibration: one image file becomes uint8 pixels, or is refused. Bytes in, numpy out; the only module that decodes.

What is honoured, converted, refused (docs/calibration.md has the reasons):

- the EXIF orientation is honoured: the upright picture is what a viewer, OpenCV and the training tools see;
- a palette without transparency is looked up (exact); colour profiles (ICC) are ignored, as the training tools do;
- refused: alpha or transparency (the background would be a guess), CMYK, 16-bit and float samples (the scaling would be
  one too), 1-bit, animations, more pixels than Pillow's limit against decompression bombs, anything damaged.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from npubake.errors import Fault, RecipeError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_GRAY, _COLOUR = ("L",), ("RGB",)
# What Pillow's parsers raise for changed bytes; it documents no whole list. TypeError: a TIFF without its dimensions.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    ArithmeticError,
    LookupError,
    MemoryError,
    struct.error,
    zlib.error,
    UserWarning,
)
_REPLACE = "replace the file, or take it out of the set"
_WHY: dict[str, tuple[str, str]] = {
    "RGBA": ("it has an alpha channel", "flatten it onto the background that the product sees"),
    "LA": ("it has an alpha channel", "flatten it onto the background that the product sees"),
    "PA": ("it has an alpha channel", "flatten it onto the background that the product sees"),
    "La": ("it has an alpha channel", "flatten it onto the background that the product sees"),
    "RGBa": ("it has an alpha channel", "flatten it onto the background that the product sees"),
    "CMYK": ("its colours are CMYK", "convert it to RGB with the profile it was made for"),
    "YCbCr": ("its colours are raw YCbCr", "convert it to RGB"),
    "LAB": ("its colours are CIE L*a*b*", "convert it to RGB"),
    "HSV": ("its colours are HSV", "convert it to RGB"),
    "1": ("it has one bit a pixel", "convert it to 8 bits"),
    "F": ("its samples are floats, not 8 bits", "convert it to 8 bits with the scaling that the product uses"),
    "I": ("its samples are wider than 8 bits", "convert it to 8 bits with the scaling that the product uses"),
}


def decode_image(data: bytes, *, name: str, channels: int) -> NDArray[np.uint8]:
    """Pixels of one image file, uint8 [height, width, channels], RGB or grey, upright.

    channels: 3 or 1, what the preset needs. Raises RecipeError with one Fault that names the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("error", message=".*[Tt]runcated.*")
            with Image.open(io.BytesIO(data)) as image:
                _check_container(image, data, name)
                image.load()
                pixels = _pixels(image, name=name, channels=channels)
    except UnidentifiedImageError as error:
        raise _refused(name, "it is not an image that can be read, or its header is corrupt",
                       _REPLACE) from error  # fmt: skip
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _refused(name, f"it is suspiciously large: {error}", "scale it down to the camera's size") from error
    except _DAMAGE as error:
        raise _refused(name, f"it is corrupt or truncated: {error}",
                       _REPLACE) from error  # fmt: skip
    return pixels


def _check_container(image: Image.Image, data: bytes, name: str) -> None:
    """What Pillow would pass over in silence: samples wider than 8 bits cut down, a JPEG whose end is missing."""
    layout = str(getattr(image, "tile", []))  # decoder, place and raw mode of each part, until the pixels are loaded
    if ";16" in layout or (image.format == "PPM" and _ppm_maximum(data) > 255):
        raise _refused(name, *_WHY["I"])
    start, end = data.rfind(b"\xff\xda"), data.rfind(b"\xff\xd9")  # start of scan, end of image (ITU-T T.81, B.1)
    if image.format == "JPEG" and end < start:
        raise _refused(name, "it is corrupt or truncated: the end of the JPEG is missing", _REPLACE)


def _ppm_maximum(data: bytes) -> int:
    """The fourth number of a PGM or PPM header (netpbm: magic, width, height, maximum); comments are skipped."""
    words = re.sub(rb"#[^\n]*", b"", data[:1000]).split()
    return int(words[3]) if data[:2] in (b"P2", b"P3", b"P5", b"P6") and len(words) > 3 else 0


def _pixels(image: Image.Image, *, name: str, channels: int) -> NDArray[np.uint8]:
    if getattr(image, "n_frames", 1) > 1:
        raise _refused(name, "it holds several frames", "write the frames as files of their own")
    upright = ImageOps.exif_transpose(image)
    if "transparency" in upright.info:
        raise _refused(name, *_WHY["RGBA"])
    if upright.mode == "P":
        upright = upright.convert("RGB")
    if upright.mode in _WHY or upright.mode.startswith("I;"):
        raise _refused(name, *_WHY.get(upright.mode, _WHY["I"]))
    found = len(upright.getbands())
    if upright.mode not in (_COLOUR if channels == 3 else _GRAY):
        raise _refused(
            name,
            f"it has {found} channel{'s' if found > 1 else ''} ({upright.mode}), the preset needs {channels}",
            "every image of a set needs the channels that the camera gives; convert it, or take it out",
        )
    pixels: NDArray[Any] = np.asarray(upright, dtype=np.uint8)
    return pixels.reshape(upright.height, upright.width, channels)


def _refused(name: str, what: str, hint: str) -> RecipeError:
    return RecipeError(Fault(what=what, where=name, hint=hint))
