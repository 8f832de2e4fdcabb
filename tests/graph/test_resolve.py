"""graph.resolve: layer overrides by name and by operator type."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from npubake.errors import RecipeError
from npubake.graph.resolve import match_overrides, resolve_overrides
from tests.graph.summaries import summary


def _groups(**match: list[str]) -> tuple[str, ...]:
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
    ]
    resolved, faults = match_overrides(summary(), overrides)
    assert [fault.path for fault in faults] == [
        "$.layer_overrides[0].match.names[1]",
        "$.layer_overrides[1].match.op_types[0]",
        "$.layer_overrides[2].match.names[0]",
        "$.layer_overrides[3].match",
        "$.layer_overrides[4].match.names[0]",
        "$.layer_overrides[5].match",
    ]
    assert "'/stem/Conv'" in faults[0].hint
    assert "'Conv'" in faults[1].hint
    assert resolved[0].groups == ("/stem/Conv",)
    with pytest.raises(RecipeError) as caught:
        resolve_overrides(summary(), overrides)
    assert len(caught.value.faults) == 6


def test_neither_resolving_nor_checking_loads_a_numeric_library() -> None:
    loaded = "print(*{name.split('.')[0] for name in sys.modules})"
    script = f"import sys, npubake.graph.resolve, npubake.stages.check; {loaded}"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert not {"numpy", "onnx", "onnxruntime", "networkx"} & set(answer.stdout.split())
