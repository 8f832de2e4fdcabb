"""graph.transforms.tracing: channels that meet tensors without a dimension."""

from __future__ import annotations

import numpy as np

from npubake.graph.editing import GraphEditor
from npubake.graph.transforms.channels import Reach
from npubake.graph.transforms.tracing import trace_channels
from tests.graph.writing import build, normal


def test_a_product_of_numbers_has_no_channels() -> None:
    model = build(
        "float[1,8] x => float y",
        "t = Gemm(x, w1) r = ReduceMean<keepdims=0>(t) m = Mul(r, k) y = Div(m, k)",
        w1=normal(8, 6), k=np.array(2.5, np.float32),
    )  # fmt: skip
    channels = trace_channels(GraphEditor(model), Reach(writers={"weighted", "norm"}))
    assert channels.is_fixed("m")
    assert channels.is_fixed("y")


def test_a_constant_for_each_channel_behind_a_fixed_tensor_writes_them() -> None:
    model = build("float[1,8] x => float[1,4] y", "m = Mul(x, g) y = Gemm(m, w)", g=normal(8), w=normal(8, 4))
    channels = trace_channels(GraphEditor(model), Reach(writers={"norm"}))
    assert not channels.is_fixed("m")
    assert len(channels.ids["m"]) == 8
