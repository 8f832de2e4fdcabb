"""Room ``graph``: the axes of a language model's inputs against graph.json. Plain data enters, faults leave.

A contract is the preset's ``sequence``: ``{sequence_length, cache_length, axes: {input: [words]}, padded}``; what its
words mean stands in docs/recipes.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.errors import Fault
from npubake.graph.summary import GraphSummary
from npubake.nearest import did_you_mean


def stated_sizes(contract: Mapping[str, Any]) -> dict[str, int]:
    """Word -> the length that the contract states for it."""
    sequence, cache = contract["sequence_length"], contract["cache_length"]
    sizes = {"sequence": sequence, "cache": cache}
    if sequence is not None and cache is not None:
        sizes["total"] = sequence + cache
    return {word: size for word, size in sizes.items() if size is not None}


def sequence_faults(summary: GraphSummary, contract: Mapping[str, Any]) -> Iterator[Fault]:
    """Inputs that are not there or not described, axes that do not fit the model, and sizes that contradict."""
    axes, stated = contract["axes"], stated_sizes(contract)
    first: dict[str, tuple[str, int]] = {}
    for name, words in axes.items():
        path = f"$.preset.axes.{name}"
        if name not in summary.inputs:
            yield Fault(
                what=f"the model has no input {name!r}", path=path, hint=did_you_mean(name, list(summary.inputs))
            )
            continue
        shape = summary.tensors[name].shape
        if len(words) != len(shape):
            what = f"{len(words)} words for the {len(shape)} axes of {name}"
            yield Fault(what=what, path=path, hint=f"its shape is {_sizes(shape)}")
            continue
        for index, (word, size) in enumerate(zip(words, shape, strict=True)):
            if word in stated and stated[word] != size:
                what = f"{name}: the {word} is {size} in the model, {stated[word]} in the preset"
                hint = f"shape {_sizes(shape)}: correct sequence_length, cache_length or the word"
                yield Fault(what=what, path=f"{path}[{index}]", hint=hint)
            elif word not in stated and first.setdefault(word, (name, size))[1] != size:
                other, known = first[word]
                what = f"{name}: {word} is {size} here and {known} in {other}"
                yield Fault(what=what, path=f"{path}[{index}]", hint="one word has one size wherever it stands")
    for name in summary.inputs if stated else ():
        if name not in axes:
            hint = f"add {name}: one word for each axis of {_sizes(summary.tensors[name].shape)}"
            yield Fault(what=f"the axes of the input {name!r} are not described", path="$.preset.axes", hint=hint)


def _sizes(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
