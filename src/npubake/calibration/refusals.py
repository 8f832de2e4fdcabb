"""calibration: what is refused in an example and in a whole set, each by its own message. Arrays in, Faults out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.samples import InputForm
from npubake.errors import Fault, RecipeError

SHOWN = 20
BAR_TOLERANCE = 3  # JPEG moves a constant bar by a level or two next to the picture


@dataclass(slots=True, kw_only=True)
class FaultList:
    """Faults of a set in order; ``refuse`` raises the first SHOWN of them and the count of the rest."""

    faults: list[Fault] = field(default_factory=list)

    def add(self, *faults: Fault) -> None:
        self.faults.extend(faults)

    def refuse(self) -> None:
        """Raise RecipeError where there is any fault."""
        if not self.faults:
            return
        rest = len(self.faults) - SHOWN
        more = [Fault(what=f"and {rest} more faults of the same set ({len(self.faults)} in all)")] if rest > 0 else []
        raise RecipeError(*self.faults[:SHOWN], *more)


def check_pixels(value: NDArray[Any], channels: int, *, where: str, name: str) -> Fault | None:
    """An image before the spatial steps: uint8 [height, width, channels] (grey: [height, width] too)."""
    if value.dtype.kind == "f":
        return Fault(
            what=f"input {name!r} is {value.dtype} ({_span(value)}) where uint8 pixels are due",
            where=where,
            hint="give the image before normalisation: the preset does the linear step itself; or, where the data are "
            "the model's own inputs, prepared already, 'preset: classification' (or vision_transformer)",
        )
    if value.dtype != np.uint8:
        return Fault(
            what=f"input {name!r} is {value.dtype} where uint8 pixels are due",
            where=where,
            hint="store 8-bit pixels: array.astype(np.uint8)",
        )
    if value.ndim == 4:
        return Fault(
            what=f"input {name!r} has a batch of {value.shape[0]}, shape {_sizes(value.shape)}",
            where=where,
            hint="one image a file, (height, width, channels); an npz may hold a stack of them",
        )
    if value.ndim == 2 and channels == 1:
        return None
    if value.ndim == 3 and value.shape[0] in (1, 3) and value.shape[2] not in (1, 3):
        return Fault(
            what=f"input {name!r} is laid out as channels, height, width: {_sizes(value.shape)}",
            where=where,
            hint="images are height, width, channels: array.transpose(1, 2, 0)",
        )
    if value.ndim != 3 or 0 in value.shape:
        return Fault(
            what=f"input {name!r} has the shape {_sizes(value.shape)}",
            where=where,
            hint=f"an image is (height, width, {channels})",
        )
    if value.shape[2] != channels:
        return Fault(
            what=f"input {name!r} has {value.shape[2]} channels, the preset needs {channels}",
            where=where,
            hint="every image of a set needs the channels that the camera gives",
        )
    return None


def check_prepared(value: NDArray[Any], form: InputForm, *, where: str, name: str) -> Fault | None:
    """A prepared tensor: the model input's dtype and shape (a batch of one may be left out), finite. float16 stands for
    float32: each of its values is one, and a model in half precision was brought to float32.
    """
    if value.dtype.name != form.dtype and (value.dtype.name, form.dtype) != ("float16", "float32"):
        hint = f"store it as {form.dtype}: array.astype(np.{form.dtype})"
        if value.dtype == np.uint8 and form.dtype == "float32":
            hint = "apply the scaling and normalisation of the training first, or choose a preset that takes images"
        return Fault(
            what=f"input {name!r} is {value.dtype.name} where a prepared {form.dtype} tensor is due",
            where=where,
            hint=hint,
        )
    single = form.shape[1:] if form.shape[:1] == (1,) else form.shape
    if value.shape not in (form.shape, single):
        return _shape_fault(value.shape, form.shape, where=where, name=name)
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        kind = "NaN" if np.isnan(value).any() else "Inf"
        return Fault(
            what=f"input {name!r} holds {kind}",
            where=where,
            hint="no scale can be made of it: find where the preparation divides by zero",
        )
    return None


def _shape_fault(found: tuple[int, ...], due: tuple[int, ...], *, where: str, name: str) -> Fault:
    hint = f"the model's input is {_sizes(due)}"
    if found[1:] == due[1:] and due[:1] == (1,):
        what = f"input {name!r} has a batch of {found[0]}, shape {_sizes(found)}"
        return Fault(what=what, where=where, hint=f"{hint}: one example a file, or a stack in an npz")
    if len(due) == 4 and found[-3:] == (due[2], due[3], due[1]):
        hint += "; these look like height, width, channels: array.transpose(2, 0, 1)"
    return Fault(what=f"input {name!r} has the shape {_sizes(found)}", where=where, hint=hint)


@dataclass(slots=True, kw_only=True)
class Census:
    """Counts over all images of a set, for what only the whole set shows. frame: the letterbox's (height, width)."""

    frame: tuple[int, int] | None
    fill: int
    images: int = 0
    at_frame_size: int = 0
    barred: int = 0
    brightest: int = 0

    def count(self, pixels: NDArray[np.uint8]) -> None:
        """One image, uint8 [height, width, channels], before the spatial steps."""
        self.images += 1
        self.brightest = max(self.brightest, int(pixels.max()))
        if pixels.shape[:2] == self.frame:
            self.at_frame_size += 1
            self.barred += has_bars(pixels, self.fill)

    def faults(self, letterboxed_allowed: bool) -> Iterable[Fault]:
        if self.images and self.brightest <= 1:
            yield Fault(
                what=f"no pixel of {self.images} images is above 1: these are normalised values cast to uint8",
                hint="give the pixels themselves, 0 to 255",
            )
        if self.frame is None or letterboxed_allowed or self.at_frame_size != self.images:
            return
        if self.images and 2 * self.barred > self.images:
            yield Fault(
                what=f"all {self.images} images are exactly {self.frame[1]}x{self.frame[0]}, and {self.barred} have "
                f"bars of {self.fill}: they are letterboxed already",
                hint="give the raw pictures, the preset letterboxes them; "
                "or set calibration.letterboxed: allowed where they are meant",
            )


def has_bars(pixels: NDArray[np.uint8], fill: int) -> bool:
    """True where both outermost rows, or both outermost columns, are constant ``fill`` (within 3 levels)."""
    far = np.abs(pixels.astype(np.int16) - fill) > BAR_TOLERANCE
    rows, columns = far[[0, -1]].any(), far[:, [0, -1]].any()
    return not rows or not columns


def _span(value: NDArray[Any]) -> str:
    return f"{float(value.min()):.3g} to {float(value.max()):.3g}" if value.size else "empty"


def _sizes(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
