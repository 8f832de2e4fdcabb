"""The schema and the dataclasses state the same keys, names and defaults; every property is described."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from npubake.document.schema import schema_text
from npubake.recipe import recipe as data
from npubake.recipe.loader import load_recipe
from npubake.recipe.presets import PRESETS
from tests.recipe.writing import SMALL, write

SCHEMA: dict[str, Any] = json.loads(schema_text("recipe"))
TOP = SCHEMA["properties"]
LAYER = TOP["layer_overrides"]["items"]["properties"]
OPTIONS = TOP["platform_options"]["additionalProperties"]["properties"]

# (dataclass, properties of the schema, fields under another name, schema keys that stand elsewhere)
PAIRS: list[tuple[Any, dict[str, Any], dict[str, str], set[str]]] = [
    (data.ModelSource, TOP["model"]["properties"], {}, set()),
    (data.ModelInput, TOP["model"]["properties"]["inputs"]["additionalProperties"]["properties"], {}, set()),
    (data.RuntimeInput, SCHEMA["$defs"]["runtime_input"]["properties"], {}, set()),
    (data.Calibration, TOP["calibration"]["properties"], {}, set()),
    (data.RangeChoice, TOP["quant_config"]["properties"]["calibration"]["properties"], {}, set()),
    (data.QuantConfig, TOP["quant_config"]["properties"], {"granularity": "weights"}, set()),
    (data.LayerMatch, LAYER["match"]["properties"], {}, set()),
    (data.LayerSettings, LAYER["set"]["properties"], {}, set()),
    (data.LayerOverride, LAYER, {}, set()),
    (data.Remove, TOP["remove"]["properties"], {}, set()),
    (data.Metric, TOP["metric"]["properties"], {}, set()),
    (data.Licence, TOP["licence"]["properties"], {}, set()),
    (data.BoardSoftware, OPTIONS["sdk"]["properties"], {}, set()),
    (
        data.PlatformOptions,
        OPTIONS,
        {"max_l2m_bytes": "max_l2m_size", "runtime_inputs": "runtime_input"},
        set(),
    ),
    (
        data.Recipe,
        TOP,
        {
            "runtime_inputs": "runtime_input",
            "request": "preset",
            "preprocessing": "preprocess",
            "single": "platform",
            "files": "extends",
            "file": "",
            "positions": "",
        },
        {"version"},
    ),
]


@pytest.mark.parametrize(
    ("kind", "properties", "renamed", "elsewhere"), PAIRS, ids=[pair[0].__name__ for pair in PAIRS]
)
def test_the_same_keys(kind: Any, properties: dict[str, Any], renamed: dict[str, str], elsewhere: set[str]) -> None:
    names = {renamed.get(entry.name, entry.name) for entry in fields(kind)} - {""}
    assert names == set(properties) - elsewhere


@pytest.mark.parametrize(
    ("kind", "properties", "renamed", "elsewhere"), PAIRS, ids=[pair[0].__name__ for pair in PAIRS]
)
def test_the_same_defaults(kind: Any, properties: dict[str, Any], renamed: dict[str, str], elsewhere: set[str]) -> None:
    del elsewhere
    for entry in fields(kind):
        stated = properties.get(renamed.get(entry.name, entry.name), {})
        if "default" in stated:
            assert entry.default == stated["default"], entry.name
        elif entry.default is not MISSING and entry.name != "granularity":  # it stands one level deeper, see below
            assert entry.default in (None, "", (), False, "featuremap"), entry.name


def test_the_same_default_gates() -> None:
    for boundary, gate in data.DEFAULT_GATES.items():
        properties = TOP["gates"]["properties"][boundary]["properties"]
        assert properties["cosine"]["default"] == gate.cosine
        assert properties["sqnr_db"]["default"] == gate.sqnr_db
    assert set(TOP["gates"]["properties"]) == set(data.BOUNDARIES) == set(get_args(data.Boundary))


def test_nested_defaults() -> None:
    weights = TOP["quant_config"]["properties"]["weights"]["properties"]["granularity"]
    assert data.QuantConfig(lane="a8w8").granularity == weights["default"]


def test_the_same_names() -> None:
    quant = TOP["quant_config"]["properties"]
    assert quant["lane"]["enum"] == list(data.LANE_SPELLINGS)
    assert set(data.LANE_SPELLINGS.values()) == set(get_args(data.Lane))
    assert LAYER["set"]["properties"]["activation"]["enum"] == list(get_args(data.Precision))
    assert quant["calibration"]["properties"]["method"]["enum"] == list(get_args(data.Method))
    assert SCHEMA["$defs"]["runtime_input"]["properties"]["type"]["enum"] == list(get_args(data.RuntimeType))
    assert TOP["preset"]["then"]["enum"] == TOP["preset"]["properties"]["name"]["enum"] == list(PRESETS)


def properties_of(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {}).items()
        for value in schema.values():
            yield from properties_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from properties_of(value)


@pytest.mark.parametrize("name", ["recipe", "platform", "lock"])
def test_schemas_are_valid_closed_and_described(name: str) -> None:
    schema = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    for key, entry in properties_of(schema):
        if set(entry) != {"const"} and "$ref" not in entry:
            assert entry.get("description"), key
        if "properties" in entry:
            assert entry["additionalProperties"] is False, key


def test_a_recipe_of_all_defaults_is_the_smallest_recipe(tmp_path: Path) -> None:
    def stated(properties: dict[str, Any]) -> dict[str, Any]:
        return {key: entry["default"] for key, entry in properties.items() if "default" in entry}

    quant = TOP["quant_config"]["properties"]
    method = {key: value for key, value in stated(quant["calibration"]["properties"]).items() if key != "percentile"}
    blocks = {
        "quant_config": {"lane": "platform", "calibration": method, "weights": stated(quant["weights"]["properties"])},
        "gates": {name: stated(entry["properties"]) for name, entry in TOP["gates"]["properties"].items()},
    }
    text = SMALL + "".join(f"{key}: {json.dumps(block)}\n" for key, block in blocks.items())
    full = load_recipe(write(tmp_path, "r.yaml", text))
    assert full == load_recipe(write(tmp_path, "r.yaml", SMALL))
