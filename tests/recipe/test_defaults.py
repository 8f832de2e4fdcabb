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
from npubake.recipe import quant_config as quant
from npubake.recipe import recipe as data
from npubake.recipe.loader import load_recipe
from npubake.recipe.presets import PRESETS
from tests.recipe.writing import SMALL, write

SCHEMA: dict[str, Any] = json.loads(schema_text("recipe"))
TOP = SCHEMA["properties"]
QUANT = TOP["quant_config"]["properties"]
LAYER = SCHEMA["$defs"]["layer_override"]["properties"]
OPTIONS = TOP["platform_options"]["additionalProperties"]["properties"]

# (dataclass, properties of the schema, fields under another name, schema keys that stand elsewhere)
PAIRS: list[tuple[Any, dict[str, Any], dict[str, str], set[str]]] = [
    (data.ModelSource, TOP["model"]["properties"], {}, set()),
    (data.ModelInput, TOP["model"]["properties"]["inputs"]["additionalProperties"]["properties"], {}, set()),
    (data.RuntimeInput, SCHEMA["$defs"]["runtime_input"]["properties"], {}, set()),
    (data.Calibration, TOP["calibration"]["properties"], {}, set()),
    (quant.QuantConfig, QUANT, {}, set()),
    (quant.RangeChoice, QUANT["calibration"]["properties"], {}, set()),
    (quant.WeightChoice, QUANT["weights"]["properties"], {}, set()),
    (quant.BitPolicy, QUANT["bits"]["properties"], {}, set()),
    (quant.EquivalentTransformation, QUANT["equivalent_transformation"]["properties"], {}, set()),
    (quant.ScaleSearch, QUANT["search_weight_scale"]["properties"], {}, set()),
    (quant.Hessian, QUANT["hessian"]["properties"], {}, set()),
    (quant.Mod, QUANT["mod"]["properties"], {}, set()),
    (quant.Tuning, QUANT["tuning"]["properties"], {}, set()),
    (quant.Load, QUANT["load"]["properties"], {}, set()),
    (quant.Subgraph, LAYER["match"]["properties"]["subgraph"]["properties"], {"start": "from", "end": "to"}, set()),
    (quant.LayerMatch, LAYER["match"]["properties"], {}, set()),
    (quant.LayerSettings, LAYER["set"]["properties"], {}, set()),
    (quant.LayerOverride, LAYER, {}, set()),
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
        elif entry.default is not MISSING:
            assert entry.default in (None, "", (), False, "featuremap"), entry.name


def test_the_same_default_gates() -> None:
    for boundary, gate in data.DEFAULT_GATES.items():
        properties = TOP["gates"]["properties"][boundary]["properties"]
        assert properties["cosine"]["default"] == gate.cosine
        assert properties["sqnr_db"]["default"] == gate.sqnr_db
        assert properties.get("boxes_matched", {}).get("default") == gate.boxes_matched
    assert set(TOP["gates"]["properties"]) == set(data.DEFAULT_GATES) == set(get_args(data.Boundary))


def test_the_same_names() -> None:
    assert QUANT["lane"]["enum"] == list(quant.LANE_SPELLINGS)
    assert set(quant.LANE_SPELLINGS.values()) == set(get_args(quant.Lane))
    assert list(QUANT["bits"]["properties"]["roles"]["properties"]) == list(get_args(quant.Role))
    choices = {
        ("calibration", "method"): quant.Method,
        ("calibration", "granularity"): quant.ActivationGranularity,
        ("weights", "granularity"): quant.Granularity,
        ("tuning", "level"): quant.Level,
    }
    for (block, name), words in choices.items():
        assert QUANT[block]["properties"][name]["enum"] == list(get_args(words)), name
    assert QUANT["bias_correction"]["enum"] == list(get_args(quant.BiasCorrection))
    assert QUANT["mod"]["properties"]["learn"]["items"]["enum"] == list(get_args(quant.Learnable))
    settings = {
        "activation": quant.Precision,
        "output": quant.OutputPrecision,
        "weights": quant.WeightType,
        "granularity": quant.Granularity,
        "method": quant.Method,
        "bias_correction": quant.BiasCorrection,
    }
    for name, words in settings.items():
        assert LAYER["set"]["properties"][name]["enum"] == list(get_args(words)), name
    assert LAYER["match"]["properties"]["roles"]["items"]["enum"] == list(get_args(quant.Role))
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

    # read only beside another choice than the default, or not at all where nothing is asked for
    conditional = {"percentile", "group_size", "missing", "boxes_matched"}
    config = {
        name: {key: value for key, value in stated(entry["properties"]).items() if key not in conditional}
        for name, entry in QUANT.items()
        if name in ("calibration", "weights")
    }
    blocks = {
        "quant_config": {"lane": "platform", "save_sample": False, **config},
        "gates": {
            name: {key: value for key, value in stated(entry["properties"]).items() if key not in conditional}
            for name, entry in TOP["gates"]["properties"].items()
        },
    }
    text = SMALL + "".join(f"{key}: {json.dumps(block)}\n" for key, block in blocks.items())
    full = load_recipe(write(tmp_path, "r.yaml", text))
    assert full == load_recipe(write(tmp_path, "r.yaml", SMALL))
