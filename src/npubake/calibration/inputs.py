"""calibration: what is asked of a sample set, and what fills each input of the model. Data and checks; no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.preprocessing import Preprocessing
from npubake.calibration.samples import InputForm
from npubake.errors import Fault, RecipeError
from npubake.graph.summary import GraphSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a set. preset: expanded form; count: examples wanted, None for all; layouts: by input, where
    the recipe states one; smoke: random data may stand in; letterboxed: images that look letterboxed are meant; first:
    the first example alone, to see whether it fits; nothing is judged that only a whole set shows.
    """

    preset: Mapping[str, Any]
    count: int | None
    layouts: Mapping[str, Any]
    smoke: bool
    letterboxed: bool
    first: bool = False

    @property
    def axes(self) -> Mapping[str, Any]:
        """Input -> a word an axis, of the presets of language models."""
        return dict(self.preset.get("sequence", {}).get("axes", {}))

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Request:
        """From the stage's parameters (docs/architecture.md)."""
        inputs = params.get("inputs", {})
        return cls(
            preset=params["preset"],
            count=params.get("count"),
            layouts={name: entry["layout"] for name, entry in inputs.items() if entry.get("layout")},
            smoke=params.get("purpose", "release") == "smoke",
            letterboxed=params.get("letterboxed") == "allowed",
            first=params.get("first", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One model input: its form, the image preset that fills it (None: prepared tensors), and a word for each of its
    axes where a language model's preset has them.
    """

    name: str
    form: InputForm
    preset: Preprocessing | None
    axes: tuple[str, ...] = ()

    def stacked(self, value: NDArray[Any]) -> bool:
        """Whether an array of an npz holds several examples (or a batch of one that can be taken off)."""
        if self.preset is not None:
            return value.ndim == 4
        return self.form.shape[:1] == (1,) and value.shape != self.form.shape and value.ndim == len(self.form.shape)


def make_slots(graph: GraphSummary, request: Request) -> dict[str, Slot]:
    """Every model input with what fills it: the image preset for 4-dimensional float32 inputs of its channel count.

    RecipeError where an image preset finds no such input.
    """
    slots = {}
    for name in graph.inputs:
        fact = graph.tensors[name]
        preset = Preprocessing.from_expanded(request.preset, request.layouts.get(name))
        axis = 1 if preset and preset.linear.layout == "NCHW" else -1
        if preset and (len(fact.shape) != 4 or fact.shape[axis] != preset.channels or fact.dtype != "float32"):
            preset = None
        form = InputForm(shape=fact.shape, dtype=fact.dtype, linear=preset.linear if preset else None)
        slots[name] = Slot(name=name, form=form, preset=preset, axes=tuple(request.axes.get(name, ())))
    if request.preset["decode"] and not any(slot.preset for slot in slots.values()):
        shapes = ", ".join(f"{name} {graph.tensors[name].shape}" for name in graph.inputs)
        raise RecipeError(
            Fault(
                what=f"the preset {request.preset['name']} decodes {request.preset['channels']} images "
                f"as {request.preset['layout']}, and no input of the model takes them: {shapes}",
                hint="choose another preset, or state the input's layout",
            )
        )
    return slots


def frame_fault(slot: Slot, source: tuple[int, int], where: str) -> Fault | None:
    """An image that the preset does not bring to the model's size."""
    assert slot.preset is not None
    due = slot.form.shape[2:4] if slot.preset.linear.layout == "NCHW" else slot.form.shape[1:3]
    if not slot.preset.fits(source):
        return Fault(what=f"image of {source[1]}x{source[0]} is smaller than the preset's crop", where=where)
    frame = slot.preset.geometry(source).frame
    if frame == due:
        return None
    return Fault(
        what=f"the preset {slot.preset.name} makes {frame[1]}x{frame[0]} of this image, the model's input "
        f"{slot.name!r} needs {due[1]}x{due[0]}",
        where=where,
        hint="choose the preset of the model's size, or images of that size",
    )


def random_value(generator: np.random.Generator, slot: Slot) -> NDArray[Any]:
    """Pixels uniform in 0..255, floats uniform in 0..1, integers zero or one; in stored form."""
    shape = slot.form.shape
    if slot.preset is not None:
        size = shape[2:4] if slot.preset.linear.layout == "NCHW" else shape[1:3]
        return generator.integers(0, 256, (*size, slot.preset.channels), dtype=np.uint8)
    if np.dtype(slot.form.dtype).kind == "f":
        return generator.random(shape).astype(slot.form.dtype)
    return generator.integers(0, 2, shape).astype(slot.form.dtype)
