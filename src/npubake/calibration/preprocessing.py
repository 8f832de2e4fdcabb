"""calibration: the one preprocessing block, for calibration, validation and the runtime's contract. numpy only.

Order of work: decode, resize, crop, all on uint8 RGB (or grey) pixels in HWC; then the *linear step*: channel order,
x / divide_by, (x - mean) / std, layout, in float32. What is stored and archived are the pixels before the linear step.
The form of the block, and the rounding of sizes and offsets, is defined in ``recipe/presets.py`` (expanded form).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
Size = tuple[int, int]
Layout = Literal["NCHW", "NHWC"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How a source image lies in the model's frame, sizes as (height, width) in pixels.

    A point (y, x) of the source stands at ``offset + (y, x) * resized / source`` in the frame. offset: (top, left),
    negative where a crop cuts the source.
    """

    source: Size
    resized: Size
    offset: Size
    frame: Size

    def to_json(self) -> dict[str, list[int]]:
        return {name: list(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, list[int]]) -> Geometry:
        return cls(**{name: (value[0], value[1]) for name, value in data.items()})

    def to_source(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Corner boxes [N, 4] (x1, y1, x2, y2) of the frame in pixels of the source image, cut to it."""
        height, width = self.source
        shift = np.array([self.offset[1], self.offset[0]] * 2, np.float64)
        ratio = np.array([width / self.resized[1], height / self.resized[0]] * 2, np.float64)
        top = np.array([width, height] * 2, np.float64)
        inside: NDArray[np.float64] = np.clip((boxes - shift) * ratio, 0.0, top)
        return inside


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStep:
    """The step from stored uint8 pixels to the model's float32 input.

    channels: ``rgb``, ``bgr`` or ``gray``; mean, std: one a channel in that order, in units after the division.
    """

    channels: Literal["rgb", "bgr", "gray"]
    divide_by: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layout: Layout

    def apply(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """pixels [H, W, C], RGB or grey, 0..255, uint8 or float -> float32 [1, C, H, W] or [1, H, W, C].

        Every operation is rounded to float32, in the order that torchvision's ToTensor and Normalize have.
        """
        values: NDArray[Any] = pixels.astype(np.float32)
        if self.channels == "bgr":
            values = values[:, :, ::-1]
        values = values / np.float32(self.divide_by)
        if any(self.mean):
            values = values - np.array(self.mean, np.float32)
        if any(value != 1.0 for value in self.std):
            values = values / np.array(self.std, np.float32)
        laid = values.transpose(2, 0, 1) if self.layout == "NCHW" else values
        return np.ascontiguousarray(laid[np.newaxis], dtype=np.float32)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LinearStep:
        return cls(**{**data, "mean": tuple(data["mean"]), "std": tuple(data["std"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """The spatial steps of an image preset, and its linear step. resize_kind: ``''`` for none; interpolation: see
    ``recipe/presets.py``; crop: centre crop or None; fill: value of the letterbox's bars.
    """

    name: str
    version: int
    resize_kind: Literal["", "letterbox", "resize_exact", "resize_shorter"]
    size: Size
    interpolation: str
    fill: int
    crop: Size | None
    linear: LinearStep

    @property
    def channels(self) -> int:
        return 1 if self.linear.channels == "gray" else 3

    @classmethod
    def from_expanded(cls, data: Mapping[str, Any], layout: Layout | None = None) -> Preprocessing | None:
        """The block of an image preset (expanded form); None where the preset takes prepared tensors.

        layout: the model input's own layout, where the recipe states one.
        """
        if data["decode"] is None:
            return None
        resize = data["resize"] or {"kind": "", "size": (0, 0), "interpolation": "bilinear", "fill": None}
        count = 1 if data["channels"] == "gray" else 3
        linear = LinearStep(
            channels=data["channels"],
            divide_by=float((data["scale"] or {"divide_by": 1})["divide_by"]),
            mean=_per_channel(data["mean"], count, 0.0),
            std=_per_channel(data["std"], count, 1.0),
            layout=layout or data["layout"],
        )
        return cls(
            name=data["name"],
            version=data["version"],
            resize_kind=resize["kind"],
            size=(resize["size"][0], resize["size"][1]),
            interpolation=resize["interpolation"],
            fill=resize["fill"] or 0,
            crop=None if data["crop"] is None else (data["crop"]["size"][0], data["crop"]["size"][1]),
            linear=linear,
        )

    def fits(self, source: Size) -> bool:
        """Whether the crop fits into what a source image of this size is resized to."""
        canvas = self._resized(source)[1]
        return self.crop is None or (self.crop[0] <= canvas[0] and self.crop[1] <= canvas[1])

    def geometry(self, source: Size) -> Geometry:
        """Where a source image of this size lies in the frame; integers by the rules of ``recipe/presets.py``."""
        height, width = source
        resized, canvas = self._resized(source)
        top, left = (canvas[0] - resized[0]) // 2, (canvas[1] - resized[1]) // 2
        frame = canvas
        if self.crop is not None:
            top, left = top - (canvas[0] - self.crop[0]) // 2, left - (canvas[1] - self.crop[1]) // 2
            frame = self.crop
        return Geometry(source=(height, width), resized=resized, offset=(top, left), frame=frame)

    def _resized(self, source: Size) -> tuple[Size, Size]:
        """Sizes of the resized image and of the canvas it stands on."""
        height, width = source
        if self.resize_kind == "letterbox":
            ratio = min(self.size[0] / height, self.size[1] / width)
            return (max(round(height * ratio), 1), max(round(width * ratio), 1)), self.size
        if self.resize_kind == "resize_exact":
            return self.size, self.size
        if self.resize_kind == "resize_shorter":
            short, long = min(source), max(source)
            longer = self.size[0] * long // short
            size = (self.size[0], longer) if height <= width else (longer, self.size[0])
            return size, size
        return source, source

    def spatial(self, pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], Geometry]:
        """Resize, pad and crop: uint8 [h, w, C] -> uint8 [H, W, C] of the frame.

        Raises ValueError where the crop is larger than the image it is cut from.
        """
        geometry = self.geometry((pixels.shape[0], pixels.shape[1]))
        resized, canvas_size = self._resized(geometry.source)
        if not self.fits(geometry.source):
            raise ValueError(f"a crop of {self.crop} does not fit into {canvas_size} (height, width)")
        image = _resize(pixels, resized, _FILTERS[self.interpolation])
        if canvas_size != resized:
            top, left = (canvas_size[0] - resized[0]) // 2, (canvas_size[1] - resized[1]) // 2
            canvas = np.full((*canvas_size, pixels.shape[2]), self.fill, np.uint8)
            canvas[top : top + resized[0], left : left + resized[1]] = image
            image = canvas
        if self.crop is not None:
            top, left = (canvas_size[0] - self.crop[0]) // 2, (canvas_size[1] - self.crop[1]) // 2
            image = image[top : top + self.crop[0], left : left + self.crop[1]]
        return np.ascontiguousarray(image), geometry


def _per_channel(values: Any, count: int, default: float) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values) if values is not None else (default,)
    return numbers * count if len(numbers) == 1 else numbers


def _resize(pixels: NDArray[np.uint8], size: Size, kind: Image.Resampling) -> NDArray[np.uint8]:
    """Pillow's resize (bilinear and bicubic are area-aware when they shrink); the identity where nothing changes."""
    if size == pixels.shape[:2]:
        return pixels
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    resized = np.asarray(image.resize((size[1], size[0]), kind), dtype=np.uint8)
    return resized.reshape(*size, pixels.shape[2])
