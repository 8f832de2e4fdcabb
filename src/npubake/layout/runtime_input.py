"""Layout room: what the board feeds. Encodes pixels as the runtime's tensors and decodes them, in integers, by numpy.

Arithmetic (coefficients in ``fixedpoint.colour``, BT.601, 14 fraction bits):

  encode  Y = offset + ((a . RGB + 2**13) >> 14);  U, V = 128 + ((a . RGB + 2**13) >> 14), clamped to 0..255 (full)
          or to 16..235 and 16..240 (video). nv12 takes the sum of each 2 x 2 block: (a . sum + 2**15) >> 16,
          chroma sited in the block's centre.
  decode  rint((luma * (Y - offset) + c . (U - 128, V - 128)) / 2**14), half to even, clamped to 0..255;
          nv12's chroma is repeated over its 2 x 2 block (nearest).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.fixedpoint.colour import BT601, CHROMA_CENTRE, FRACTION_BITS, ColourRange, RuntimeInput

Tensors = dict[str, NDArray[Any]]
# Lowest and highest code of luma and of chroma. Video: ITU-R BT.601-7, 8 bits; full: JFIF 1.02.
_LIMITS: Mapping[ColourRange, tuple[tuple[int, int], tuple[int, int]]] = {
    "full": ((0, 255), (0, 255)),
    "video": ((16, 235), (16, 240)),
}


def encode(spec: RuntimeInput, pixels: NDArray[Any]) -> Tensors:
    """The runtime's tensors of one image. pixels: uint8 [H, W, C], channels in the order of ``spec.channels``.

    A featuremap is handed through as it is, any shape and dtype. Raises StageError for a wrong shape or dtype.
    """
    if spec.type == "featuremap":
        return {spec.name: pixels}
    _check_pixels(spec, pixels)
    if spec.type == "gray":
        return {spec.name: pixels.transpose(2, 0, 1)[None].copy()}
    rgb = pixels[..., ::-1] if spec.channels == "bgr" else pixels
    if spec.type in ("rgb", "bgr"):
        return {spec.name: (rgb if spec.type == "rgb" else rgb[..., ::-1])[None].copy()}
    luma = rgb_to_yuv(rgb, spec.range, bits=0)
    if spec.type == "yuv444":
        return {spec.name: luma[None]}
    wide = rgb.astype(np.int32)
    rows = wide[0::2] + wide[1::2]
    blocks = rows[:, 0::2] + rows[:, 1::2]
    chroma = rgb_to_yuv(blocks, spec.range, bits=2)[..., 1:]
    y_name, uv_name = spec.tensors
    return {y_name: luma[None, ..., :1].copy(), uv_name: chroma[None].copy()}


def decode(spec: RuntimeInput, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """uint8 pixels [H, W, C], channels in the order of ``spec.channels``; a featuremap comes back as it is."""
    if spec.type == "featuremap":
        return tensors[spec.name]
    if spec.type == "gray":
        plane: NDArray[Any] = tensors[spec.name][0].transpose(1, 2, 0).copy()
        return plane
    if spec.type == "nv12":
        y_plane, uv_plane = (tensors[name][0] for name in spec.tensors)
        yuv = np.concatenate([y_plane, uv_plane.repeat(2, axis=0).repeat(2, axis=1)], axis=2)
        rgb: NDArray[Any] = yuv_to_rgb(yuv, spec.range)
    elif spec.type == "yuv444":
        rgb = yuv_to_rgb(tensors[spec.name][0], spec.range)
    else:
        rgb = tensors[spec.name][0][..., :: 1 if spec.type == "rgb" else -1]
    return (rgb[..., ::-1] if spec.channels == "bgr" else rgb).copy()


def rgb_to_yuv(rgb: NDArray[Any], colour_range: ColourRange, *, bits: int) -> NDArray[np.uint8]:
    """BT.601 of [..., 3] integers that are sums of 2**bits pixels each, bits <= 2; uint8 [..., 3].

    Every sum is below 2**26 (three products of a factor below 2**14 with 4 * 255), so that int32 holds it.
    """
    numbers = BT601[colour_range]
    shift = FRACTION_BITS + bits
    planes = np.moveaxis(rgb, -1, 0).astype(np.int32)
    yuv = np.empty(rgb.shape, np.uint8)
    for index, row in enumerate(numbers.to_yuv):
        low, high = _LIMITS[colour_range][index > 0]
        offset = CHROMA_CENTRE if index else numbers.offset
        total = _weighted(planes, row) + (1 << (shift - 1))
        yuv[..., index] = np.clip((total >> shift) + offset, low, high)
    return yuv


def yuv_to_rgb(yuv: NDArray[np.uint8], colour_range: ColourRange) -> NDArray[np.uint8]:
    """Inverse of BT.601 for [..., 3] uint8, rounded half to even, clamped. Sums stay below 2**24: int32 holds them."""
    numbers = BT601[colour_range]
    luma, *chroma = np.moveaxis(yuv, -1, 0).astype(np.int32)
    grey = numbers.luma * (luma - numbers.offset)
    centred = [plane - CHROMA_CENTRE for plane in chroma]
    rgb = np.empty(yuv.shape, np.uint8)
    for index, row in enumerate(numbers.to_rgb):
        total = grey + _weighted(centred, row)
        half = (1 << (FRACTION_BITS - 1)) - 1 + ((total >> FRACTION_BITS) & 1)
        rgb[..., index] = np.clip((total + half) >> FRACTION_BITS, 0, 255)
    return rgb


def _weighted(planes: Iterable[NDArray[np.int32]], row: Sequence[int]) -> NDArray[np.int32]:
    """The sum of int32 planes times their factors."""
    first, *others = (plane * np.int32(factor) for plane, factor in zip(planes, row, strict=True))
    for plane in others:
        first += plane
    return first


def _check_pixels(spec: RuntimeInput, pixels: NDArray[Any]) -> None:
    channels = 1 if spec.channels == "gray" else 3
    found = f"{pixels.dtype} {list(pixels.shape)}"
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != channels:
        hint = f"an image is uint8 [height, width, {channels}], channels in the order {spec.channels}"
        raise StageError(Fault(where=spec.name, what=f"cannot encode {found} as {spec.type}", hint=hint))
    if spec.type == "nv12" and (pixels.shape[0] % 2 or pixels.shape[1] % 2):
        raise StageError(Fault(where=spec.name, what=f"nv12 of {found}", hint="height and width must be even"))
