"""quant: which format the weights of each group take, and what is said where it is another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npubake.quant.assign import Subject, assign
from npubake.quant.operands import ModelFacts
from npubake.quant.record import warnings
from npubake.quant.request import parse_request
from npubake.quant.weight_choice import WeightFormats, input_channels, weight_formats
from npubake.quant.weight_formats import WeightFormat
from tests.quant.graphs import observed, parsed

TEXT = """t (float[1,8,6,6] x) => (float[1,4] y) {
  a = Conv(x, w) d = Conv<group = 8>(a, v) u = ConvTranspose(d, t)
  g = GlobalAveragePool(u) f = Flatten(g) y = Gemm(f, m)
}"""
VALUES = {
    name: np.random.default_rng(1).normal(size=shape).astype(np.float32)
    for name, shape in {"w": (8, 8, 1, 1), "v": (8, 1, 3, 3), "t": (8, 64, 2, 2), "m": (64, 4)}.items()
}
MODEL, SUMMARY = parsed(TEXT, VALUES)
FACTS = ModelFacts(
    initializers=VALUES, attributes={node.name: {"group": 8} if node.name == "node_d" else {} for node in SUMMARY.nodes}
)


def formats(params: Mapping[str, Any], *settings: tuple[Sequence[str], Mapping[str, Any]]) -> WeightFormats:
    overrides = [{"match": {"names": list(names)}, "set": change} for names, change in settings]
    request = parse_request({"layer_overrides": overrides, **params})
    return weight_formats(SUMMARY, request, [tuple(names) for names, _ in settings])


def types(found: WeightFormats) -> dict[str, str]:
    return {name.removeprefix("node_"): held.dtype for name, held in found.by_group.items()}


def test_lanes_give_their_type_and_4_bits_spare_depthwise_and_transposed() -> None:
    for lane, dtype in (("a8w8", "int8"), ("a16w8", "int8"), ("a16w16", "int16"), ("fp16_a8w8", "int8")):
        found = formats({"lane": lane})
        assert (set(types(found).values()), found.kept) == ({dtype}, ())
    found = formats({"lane": "w4a16"})
    assert types(found) == {"a": "int4", "d": "int8", "u": "int8", "y": "int4"}
    assert [(entry.group, entry.asked, entry.held) for entry in found.kept] == [
        ("node_d", "int4", "int8"),
        ("node_u", "int4", "int8"),
    ]
    assert types(formats({"lane": "a8w8", "weights": {"bits": 4}})) == types(found)
    assert types(formats({"lane": "w4a16", "weights": {"bits": 16}})) == dict.fromkeys("aduy", "int16")


def test_only_what_is_depthwise_is_called_so() -> None:
    """The first Conv of a grey picture sums over one channel, too, and has one group."""
    text = """t (float[1,1,6,6] x) => (float[1,8,4,4] y) {
      a = Conv(x, w) y = Conv<group = 8>(a, v)
    }"""
    values = {name: np.ones(shape, np.float32) for name, shape in {"w": (8, 1, 1, 1), "v": (8, 1, 3, 3)}.items()}
    _, summary = parsed(text, values)
    kept = weight_formats(summary, parse_request({"lane": "w4a16"}), []).kept
    assert [("depthwise" in entry.why, entry.held) for entry in kept] == [(False, "int8"), (True, "int8")]


def test_groups_of_weights_divide_the_channels_that_are_summed_over() -> None:
    weighted = [group for group in SUMMARY.groups if group.kind in ("conv", "conv_transpose", "linear")]
    assert [input_channels(SUMMARY, group) for group in weighted] == [8, 1, 8, 64]


def test_an_override_is_obeyed_and_the_later_one_wins() -> None:
    found = formats(
        {"lane": "w4a16"},
        (["node_d", "node_y"], {"weights": "int16"}),
        (["node_d"], {"weights": "int4"}),
        (["node_a"], {"granularity": "per_group", "group_size": 4}),
        (["node_y"], {"granularity": "per_tensor"}),
    )
    assert types(found) == {"a": "int4", "d": "int4", "u": "int8", "y": "int16"}
    assert found.by_group["node_a"] == WeightFormat(dtype="int4", granularity="per_group", group_size=4)
    assert found.by_group["node_y"].granularity == "per_tensor"


def test_sixteen_bits_take_no_groups_and_what_is_kept_loses_them() -> None:
    found = formats({"lane": "w4a16", "weights": {"granularity": "per_group", "symmetric": False}})
    assert {held.granularity for name, held in found.by_group.items() if name in ("node_a", "node_y")} == {"per_group"}
    assert {held.granularity for name, held in found.by_group.items() if name in ("node_d", "node_u")} == {
        "per_channel"
    }
    assert not any(held.symmetric for held in found.by_group.values())
    wide = formats({"lane": "a16w16", "weights": {"granularity": "per_group"}})
    assert {held.granularity for held in wide.by_group.values()} == {"per_channel"}
    assert {(entry.asked, entry.held) for entry in wide.kept} == {("per_group", "per_channel")}


def test_what_is_kept_is_a_warning_and_wide_weights_never_leave_as_accumulators() -> None:
    feeds = {"x": np.random.default_rng(2).normal(size=(1, 8, 6, 6)).astype(np.float32)}
    subject = Subject(
        summary=SUMMARY, graph_digest="", facts=FACTS, statistics=observed(MODEL, SUMMARY, [feeds])
    )  # fmt: skip
    made = assign(subject, parse_request({"lane": "w4a16"}), [])
    said = warnings(made.record)
    assert any(line.startswith("node_d: its weights are int8, not int4") for line in said)
    assert made.parameters.groups["node_y"].accumulator_output
    for params in ({"lane": "a16w16"}, {"lane": "w4a16", "weights": {"granularity": "per_group"}}):
        parameters = assign(subject, parse_request(params), []).parameters
        assert not parameters.groups["node_y"].accumulator_output
        assert parameters.tensors["y"].dtype == "int16"
    override = {"match": {"names": ["node_y"]}, "set": {"weights": "int16"}}
    parameters = assign(
        subject, parse_request({"lane": "a8w8", "layer_overrides": [override]}), [("node_y",)]
    ).parameters
    assert (parameters.tensors["y"].dtype, parameters.tensors["f"].dtype) == ("int16", "uint8")
