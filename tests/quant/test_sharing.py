"""quant: classes of tensors with one scale."""

from __future__ import annotations

import numpy as np

from npubake.graph.summary import GraphSummary
from npubake.quant.sharing import sharing_classes
from tests.quant.graphs import chain, parsed

ALL = frozenset(["conv_a", "conv_b", "pool", "cat", "flat"])


def branches() -> GraphSummary:
    return chain(
        ("conv_a", "conv", ["x"], ["a"], "Conv"),
        ("conv_b", "conv", ["x"], ["b"], "Conv"),
        ("pool", "movement", ["a"], ["p"], "MaxPool"),
        ("cat", "concat", ["p", "b"], ["c"], "Concat"),
        ("flat", "movement", ["c"], ["d"], "Reshape"),
        outputs=["d"],
    )


def test_movements_and_concats_join_all_that_they_touch() -> None:
    classes = sharing_classes(branches(), ALL)
    assert sorted(map(sorted, classes.members.values())) == [["a", "b", "c", "d", "p"], ["x"]]
    assert classes.of["d"] == classes.of["a"]


def test_the_sources_are_what_other_kernels_compute() -> None:
    classes = sharing_classes(branches(), ALL)
    assert set(classes.sources[classes.of["d"]]) == {"a", "b"}


def test_movements_in_float_join_nothing() -> None:
    classes = sharing_classes(branches(), ALL - {"pool", "flat"})
    assert sorted(map(sorted, classes.members.values())) == [["a"], ["b", "c", "p"], ["d"], ["x"]]


def test_a_concat_of_a_constant_is_a_source_itself() -> None:
    text = "t (float[1,2] x) => (float[1,4] y) { r = Relu(x) y = Concat<axis = 1>(r, token) }"
    _, summary = parsed(text, {"token": np.array([[9, -9]], np.float32)})
    classes = sharing_classes(summary, frozenset(group.name for group in summary.groups))
    assert set(classes.sources[classes.of["y"]]) == {"r", "y"}
