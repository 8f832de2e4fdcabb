"""quant: formats of weights that no layer takes are refused."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.graph.resolve import resolve_overrides
from npubake.quant.formats_in_vain import format_faults
from npubake.quant.request import parse_request
from npubake.quant.weight_choice import weight_formats
from tests.quant.test_weight_choice import SUMMARY


# Of SUMMARY: node_a sums over 8 input channels, node_d (depthwise) over 1, node_u (transposed) over 8, node_y over 64.
@pytest.mark.parametrize(
    ("params", "places", "overrides", "refused"),
    [
        ({"granularity": "per_group", "group_size": 32}, ["weights.granularity"], [], []),
        ({"granularity": "per_group", "group_size": 64}, ["weights.granularity"], [],
         ["quant_config.weights.granularity"]),
        ({"granularity": "per_group", "group_size": 64}, [], [], []),
        ({}, [], [("node_a", {"granularity": "per_group", "group_size": 8})], ["layer_overrides[0].set.group_size"]),
        ({}, [], [("node_a", {"granularity": "per_group", "group_size": 4})], []),
        ({}, [], [("node_a", {"granularity": "per_group"})], ["layer_overrides[0].set.granularity"]),
        ({}, [], [("node_?", {"granularity": "per_group"})], []),  # node_y is wide enough
        ({}, [], [("node_a", {"granularity": "per_tensor"})], []),
        ({"bits": 4}, ["weights.bits"], [], []),
        ({"bits": 4}, ["weights.bits"], [("node_[ay]", {"weights": "int8"})], ["quant_config.weights.bits"]),
    ],
)  # fmt: skip
def test_formats_of_weights_that_no_layer_takes(
    params: dict[str, Any], places: list[str], overrides: list[tuple[str, dict[str, Any]]], refused: list[str]
) -> None:
    entries = [{"match": {"names": [name]}, "set": change} for name, change in overrides]
    resolved = resolve_overrides(SUMMARY, entries)
    request = parse_request({"lane": "a8w8", "weights": params, "layer_overrides": entries})
    formats = weight_formats(SUMMARY, request, [entry.groups for entry in resolved]).by_group
    found = list(format_faults(SUMMARY, places, formats, entries, resolved))
    assert [fault.path for fault in found] == [f"$.{path}" for path in refused]
