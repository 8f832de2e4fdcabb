"""The axes of a language model's inputs against graph.json."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.graph.sequence_axes import sequence_faults, stated_sizes
from npubake.graph.summary import GraphSummary, TensorFact

SHAPES = {"x": (1, 8, 32), "positions": (1, 8), "mask": (1, 1, 8, 32), "past": (1, 2, 24, 16)}
AXES = {
    "x": ["batch", "sequence", "hidden"],
    "positions": ["batch", "sequence"],
    "mask": ["batch", "one", "sequence", "total"],
    "past": ["batch", "heads", "cache", "depth"],
}


def faults(**changes: Any) -> list[tuple[str, str]]:
    tensors = {name: TensorFact(shape=shape, dtype="float32") for name, shape in SHAPES.items()}
    summary = GraphSummary(inputs=tuple(SHAPES), outputs=(), tensors=tensors, nodes=(), groups=(), provenance=())
    contract = {"sequence_length": 8, "cache_length": 24, "axes": AXES, "padded": True, **changes}
    return [(fault.path, fault.what) for fault in sequence_faults(summary, contract)]


def test_what_fits_is_taken() -> None:
    assert faults() == []
    assert faults(sequence_length=None, cache_length=None, axes={}) == []


@pytest.mark.parametrize(
    ("axes", "path", "words"),
    [
        ({**AXES, "y": ["sequence"]}, "$.preset.axes.y", "no input 'y'"),
        ({**AXES, "x": ["batch", "sequence"]}, "$.preset.axes.x", "2 words for the 3 axes"),
        ({**AXES, "x": ["batch", "hidden", "sequence"]}, "$.preset.axes.x[2]", "sequence is 32 in the model, 8"),
        ({**AXES, "past": ["batch", "heads", "cache", "hidden"]}, "$.preset.axes.past[3]", "16 here and 32 in x"),
        ({name: words for name, words in AXES.items() if name != "mask"}, "$.preset.axes", "'mask'"),
    ],
)
def test_axes_that_do_not_fit_are_named(axes: dict[str, list[str]], path: str, words: str) -> None:
    ((found, what),) = faults(axes=axes)
    assert found == path
    assert words in what


def test_lengths_that_are_not_the_models_are_told_wherever_they_stand() -> None:
    assert [path for path, _ in faults(sequence_length=16)] == [
        "$.preset.axes.x[1]",
        "$.preset.axes.positions[1]",
        "$.preset.axes.mask[2]",
        "$.preset.axes.mask[3]",
    ]


def test_total_is_both_lengths_together() -> None:
    contract = {"sequence_length": 8, "cache_length": 0}
    assert stated_sizes(contract) == {"sequence": 8, "cache": 0, "total": 8}
    assert stated_sizes({**contract, "cache_length": None}) == {"sequence": 8}
