"""graph.resolve: layer overrides by name and by operator type."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.graph.bit_policy import with_bit_policy
from npubake.graph.resolve import match_overrides, resolve_overrides
from tests.graph.summaries import summary


def _groups(**match: Any) -> tuple[str, ...]:
    (entry,) = resolve_overrides(summary(), [{"match": match, "set": {"activation": "int16"}}])
    return entry.groups


@pytest.mark.parametrize(
    ("match", "groups"),
    [
        ({"names": ["/stem/Conv"]}, ("/stem/Conv",)),
        ({"names": ["/stem/Relu"]}, ("/stem/Conv",)),
        ({"names": ["stem_relu"]}, ("/stem/Conv",)),
        ({"names": ["/stem/bn_out"]}, ("/stem/Conv",)),
        ({"names": ["/*/Conv"]}, ("/stem/Conv", "/head/Conv")),
        ({"op_types": ["Conv"]}, ("/stem/Conv", "/head/Conv")),
        ({"names": ["/head/*"], "op_types": ["Conv", "Softmax"]}, ("/head/Conv", "/head/Softmax")),
        ({"names": ["/stem/Conv", "scores"]}, ("/stem/Conv", "/head/Softmax")),
        ({"patterns": ["/stem/*"], "names": ["scores"]}, ("/stem/Conv", "/head/Softmax")),
        ({"roles": ["first_layer"]}, ("/stem/Conv",)),
        ({"roles": ["first_layer", "last_layer"]}, ("/stem/Conv", "/head/Conv")),
        ({"roles": ["first_layer"], "op_types": ["Relu"]}, ("/stem/Conv",)),
        ({"subgraph": {"from": ["stem_relu"], "to": ["state"]}}, ("/head/Conv", "/head/Lstm")),
        ({"subgraph": {"from": ["turned"]}}, ("/head/Softmax", "/head/Slice")),
        ({"subgraph": {"from": ["turned"], "to": ["boxes"]}}, ("/head/Slice",)),
        ({"subgraph": {"to": ["/stem/bn_out"]}}, ("/stem/Conv",)),
        ({"subgraph": {"from": ["images"]}, "op_types": ["Conv"]}, ("/stem/Conv", "/head/Conv")),
        ({"subgraph": {"from": ["h*d"], "to": ["scores"]}, "names": ["/head/S*"]}, ("/head/Softmax",)),
    ],
)
def test_what_is_selected(match: dict[str, list[str]], groups: tuple[str, ...]) -> None:
    assert _groups(**match) == groups


def test_nodes_are_those_selected_not_their_whole_group() -> None:
    (entry,) = resolve_overrides(summary(), [{"match": {"op_types": ["Relu"]}}])
    assert (entry.index, entry.nodes, entry.groups) == (0, ("/stem/Relu",), ("/stem/Conv",))


def test_every_selector_that_selects_nothing_is_a_fault_with_the_nearest_name() -> None:
    overrides: list[dict[str, Any]] = [
        {"match": {"names": ["/stem/Conv", "/stem/Convv"]}},
        {"match": {"op_types": ["Convolution"]}},
        {"match": {"names": ["/STEM/conv"]}},
        {"match": {"names": ["/stem/*"], "op_types": ["Softmax"]}},
        {"match": {"names": ["/stem/conv_out"]}},
        {"match": {}},
        {"match": {"roles": ["last_layer", "querry", "query"]}},
        {"match": {"subgraph": {"from": ["boxes"], "to": ["images", "imagess"]}}},
        {"match": {"subgraph": {"from": ["boxes"], "to": ["scores"]}}},
        {"match": {"subgraph": {"from": ["turned"]}, "roles": ["head"]}},
    ]
    resolved, faults = match_overrides(summary(), overrides)
    assert [fault.path for fault in faults] == [
        "$.layer_overrides[0].match.names[1]",
        "$.layer_overrides[1].match.op_types[0]",
        "$.layer_overrides[2].match.names[0]",
        "$.layer_overrides[3].match",
        "$.layer_overrides[4].match.names[0]",
        "$.layer_overrides[5].match",
        "$.layer_overrides[6].match.roles[1]",
        "$.layer_overrides[6].match.roles[2]",
        "$.layer_overrides[7].match.subgraph.to[1]",
        "$.layer_overrides[8].match.subgraph",
        "$.layer_overrides[9].match",
    ]
    assert "'/stem/Conv'" in faults[0].hint
    assert "'Conv'" in faults[1].hint
    assert "'query'" in faults[6].hint
    assert "first_layer" in faults[7].hint
    assert "'images'" in faults[8].hint
    assert resolved[0].groups == ("/stem/Conv",)
    with pytest.raises(RecipeError) as caught:
        resolve_overrides(summary(), overrides)
    assert len(caught.value.faults) == 11


def test_a_policy_that_matches_nothing_is_named_by_its_place_in_the_recipe() -> None:
    bits = {"op_types": {"Softmaxx": "int16"}, "roles": {"query": "int16", "first_layer": "int16"}}
    resolved, faults = match_overrides(summary(), with_bit_policy(bits, [{"match": {"names": ["/nowhere"]}}]))
    assert [fault.path for fault in faults] == [
        "$.quant_config.bits.op_types.Softmaxx",
        "$.quant_config.bits.roles.query",
        "$.layer_overrides[0].match.names[0]",
    ]
    assert "'Softmax'" in faults[0].hint
    assert (resolved[1].path, resolved[1].groups) == ("quant_config.bits.roles.first_layer", ("/stem/Conv",))


def test_neither_resolving_nor_checking_loads_a_numeric_library() -> None:
    loaded = "print(*{name.split('.')[0] for name in sys.modules})"
    script = f"import sys, npubake.graph.resolve, npubake.stages.check; {loaded}"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert not {"numpy", "onnx", "onnxruntime", "networkx"} & set(answer.stdout.split())
