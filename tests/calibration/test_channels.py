"""The channel axis: each line of the rule by a graph of its own."""

from __future__ import annotations

import pytest

from npubake.calibration.channels import channel_axes
from npubake.graph.summary import FusionGroup, GraphSummary, GroupKind, TensorFact


def graph(shape: tuple[int, ...], reader: GroupKind, maker: GroupKind = "float") -> GraphSummary:
    """x -> maker -> t -> reader -> y, where t has ``shape``."""
    facts = {"x": (1, 2), "t": shape, "y": (1, 2)}
    return GraphSummary(
        inputs=("x",),
        outputs=("y",),
        tensors={name: TensorFact(shape=size, dtype="float32") for name, size in facts.items()},
        nodes=(),
        groups=(
            FusionGroup(name="m", kind=maker, nodes=("m",), inputs=("x",), outputs=("t",)),
            FusionGroup(name="r", kind=reader, nodes=("r",), inputs=("t",), outputs=("y",)),
        ),
        provenance=(),
    )


@pytest.mark.parametrize(
    ("shape", "reader", "maker", "axis"),
    [
        ((1, 8, 4, 4), "conv", "float", 1),
        ((1, 8, 4, 4), "float", "conv_transpose", 1),
        ((1, 8, 4), "conv", "float", 1),  # a convolution over a line
        ((1, 8, 4), "table", "float", 2),
        ((1, 8, 4), "linear", "float", 2),
        ((1, 8, 4), "linear", "conv", 1),  # a convolution is asked first
        ((1, 4, 4, 8), "layer_norm", "float", 3),
        ((1, 2, 4, 8), "matmul", "float", 3),
        ((1, 8, 4, 4), "table", "add", 1),
        ((1, 8, 4, 4, 4), "float", "movement", 1),
        ((1, 8), "linear", "conv", 1),
        ((8,), "conv", "float", 0),
        ((), "float", "float", 0),
    ],
)
def test_the_rule(shape: tuple[int, ...], reader: GroupKind, maker: GroupKind, axis: int) -> None:
    assert channel_axes(graph(shape, reader, maker))["t"] == axis


def test_every_quantisable_tensor_has_an_axis_in_their_order() -> None:
    found = graph((1, 8), "linear")
    assert tuple(channel_axes(found)) == found.quantisable()
