"""Recipe room: presets, the named preprocessing blocks of the vendor's table, expanded to plain data. No I/O, no numpy.

The *expanded form* (``Preprocessing.expanded()``) is what the lock freezes and what the ``samples`` and
``measure_inputs`` stages receive as their parameter ``preset``. It is JSON with exactly these keys:

==============  ======================================================================================================
name            preset it came from, ``custom`` for a recipe's own ``preprocess:`` block
version         integer, raised whenever the same image would give other numbers
decode          ``"pillow"``: files are images; ``null``: files are prepared tensors (npy, npz, pt)
channels        ``"rgb"``, ``"bgr"`` or ``"gray"``: order in which a decoded image is laid out; ``null``: not an image
resize          ``null`` or ``{kind, size: [height, width], interpolation: "bilinear" | "bicubic" | "nearest",
                backend: "pillow", fill}``; ``fill`` is 0..255 for ``letterbox`` and ``null`` otherwise
crop            ``null`` or ``{size: [height, width]}``: centre crop after the resize
scale           ``null`` or ``{"divide_by": 255}``: first part of the linear step, x / 255 in float32
mean, std       ``null`` or one number a channel, in the order of ``channels``; (x - mean) / std, second part
mean_domain     always ``"0-1"``: a recipe that states mean and std in 0-255 has them divided by 255 here
layout          ``"NCHW"`` or ``"NHWC"``: what the linear step's result is laid out as
input_dtype     dtype expected of the data before the linear step: ``"uint8"`` or ``"float32"``
sequence        only of the presets of language models: ``{sequence_length, cache_length, axes: {input: [words]},
                padded}``; lengths are ``null`` where the preset asks nothing of them. Each word names an axis of the
                input: ``sequence`` has sequence_length entries, ``cache`` cache_length, ``total`` both together, any
                other word the same size wherever it stands. padded: whether an example may end in zeros
==============  ======================================================================================================

Order of work: decode, colour, resize, crop (all in uint8), then scale, mean and std in float32.

Kinds of resize. ``letterbox``: one factor r = min(H / h, W / w); the image becomes round_half_even(h * r) by
round_half_even(w * r) pixels, at least 1, and stands at offset ((H - h') // 2, (W - w') // 2) on a canvas of ``fill``.
``resize_exact``: to size, aspect ratio not kept. ``resize_shorter``: the shorter side becomes size[0] (== size[1]), the
longer one floor(size * longer / shorter), as torchvision's Resize(int) does. Crop offset: (h - ch) // 2, (w - cw) // 2.

Source of the table: vendor document "Model Quantization" (seed 004): ``classification_torchvision`` resizes to exactly
256 x 256, yolo letterboxes with 114. Its divide-by-255 comes with the uint8 input. llm, llm_fast: both lengths are
4096, and llm calibrates whole sequences (Mobilint manual 1.3, presets); multimodal states no length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Channels = Literal["rgb", "bgr", "gray"]
ResizeKind = Literal["letterbox", "resize_shorter", "resize_exact"]
Interpolation = Literal["bilinear", "bicubic", "nearest"]
Layout = Literal["NCHW", "NHWC"]

DIVISOR = 255  # the largest uint8 value: maps 0..255 onto 0..1


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """How a decoded image reaches its size. size: (height, width); fill: value of the letterbox's bars, else None."""

    kind: ResizeKind
    size: tuple[int, int]
    interpolation: Interpolation = "bilinear"
    backend: Literal["pillow"] = "pillow"
    fill: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """What a language model's inputs have in common; see the module's docstring."""

    sequence_length: int | None = None
    cache_length: int | None = None
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    padded: bool = True

    def expanded(self) -> dict[str, Any]:
        return {**asdict(self), "axes": {name: list(words) for name, words in self.axes.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """One preprocessing block; see the module's docstring for every field. Defaults: a prepared float32 tensor."""

    name: str
    version: int = 1
    decode: Literal["pillow"] | None = None
    channels: Channels | None = None
    resize: Resize | None = None
    crop: tuple[int, int] | None = None
    divide_by: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: Layout = "NCHW"
    input_dtype: Literal["uint8", "float32"] = "float32"
    sequence: Sequences | None = None

    def expanded(self) -> dict[str, Any]:
        """The expanded form as JSON-ready data, every key present (``sequence`` where there is one)."""
        return {
            "name": self.name,
            "version": self.version,
            "decode": self.decode,
            "channels": self.channels,
            "resize": None if self.resize is None else {**asdict(self.resize), "size": list(self.resize.size)},
            "crop": None if self.crop is None else {"size": list(self.crop)},
            "scale": None if self.divide_by is None else {"divide_by": self.divide_by},
            "mean": None if self.mean is None else list(self.mean),
            "std": None if self.std is None else list(self.std),
            "mean_domain": "0-1",
            "layout": self.layout,
            "input_dtype": self.input_dtype,
            **({} if self.sequence is None else {"sequence": self.sequence.expanded()}),
        }

    @classmethod
    def from_expanded(cls, data: Mapping[str, Any]) -> Preprocessing:
        """Inverse of ``expanded``; the data has passed its schema (lock or recipe)."""
        resize, crop, scale = data["resize"], data["crop"], data["scale"]
        return cls(
            name=data["name"],
            version=data["version"],
            decode=data["decode"],
            channels=data["channels"],
            resize=None if resize is None else Resize(**{**resize, "size": tuple(resize["size"])}),
            crop=None if crop is None else (crop["size"][0], crop["size"][1]),
            divide_by=None if scale is None else scale["divide_by"],
            mean=None if data["mean"] is None else tuple(float(value) for value in data["mean"]),
            std=None if data["std"] is None else tuple(float(value) for value in data["std"]),
            layout=data["layout"],
            input_dtype=data["input_dtype"],
            sequence=_sequences(data["sequence"]) if "sequence" in data else None,
        )

    def input_range(self) -> tuple[float, float] | None:
        """(low, high) of what the linear step can make of 0..255, over all channels; None for prepared tensors."""
        if self.input_dtype != "uint8":
            return None
        top = 255.0 / (self.divide_by or 1)
        means = self.mean or (0.0,)
        stds = self.std or (1.0,) * len(means)
        means = means if len(means) == len(stds) else means * len(stds)
        ends = [(value - mean) / std for mean, std in zip(means, stds, strict=True) for value in (0.0, top)]
        return min(ends), max(ends)


def _sequences(data: Mapping[str, Any]) -> Sequences:
    return Sequences(**{**data, "axes": {name: tuple(words) for name, words in data["axes"].items()}})


def _letterbox(name: str, size: int) -> Preprocessing:
    return Preprocessing(
        name=name,
        decode="pillow",
        channels="rgb",
        resize=Resize(kind="letterbox", size=(size, size), fill=114),
        divide_by=DIVISOR,
        input_dtype="uint8",
    )


PRESETS: dict[str, Preprocessing] = {
    preset.name: preset
    for preset in (
        Preprocessing(name="classification"),
        Preprocessing(
            name="classification_torchvision",
            decode="pillow",
            channels="rgb",
            resize=Resize(kind="resize_exact", size=(256, 256)),
            crop=(224, 224),
            divide_by=DIVISOR,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
            input_dtype="uint8",
        ),
        Preprocessing(name="detection"),
        _letterbox("yolo_640", 640),
        _letterbox("yolo_1280", 1280),
        Preprocessing(name="vision_transformer"),
        Preprocessing(name="llm", sequence=Sequences(sequence_length=4096, cache_length=4096, padded=False)),
        Preprocessing(name="llm_fast", sequence=Sequences(sequence_length=4096, cache_length=4096)),
        Preprocessing(name="multimodal", sequence=Sequences()),
    )
}
