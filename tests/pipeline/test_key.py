"""Keys and their explanation."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.pipeline.explain import describe, explain
from npubake.pipeline.key import Change, canonical, difference, key, key_dictionary
from npubake.pipeline.task import Literal
from tests.pipeline import dummies
from tests.pipeline.dummies import listing, of, source, task

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def reordered(value: Any) -> Any:
    """An equal JSON value with every mapping's order turned round."""
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_canonical_bytes_depend_on_the_value_alone(value: Any) -> None:
    assert canonical(value) == canonical(reordered(value))
    assert canonical(json.loads(canonical(value))) == canonical(value)
    assert difference(value, reordered(value)) == []


@given(values, values)
def test_no_difference_means_equal_bytes(old: Any, new: Any) -> None:
    if not any(_holds_none(value) for value in (old, new)):
        assert (difference(old, new) == []) == (canonical(old) == canonical(new)) or _same_bag(old, new)


def _holds_none(value: Any) -> bool:
    if isinstance(value, dict):
        return not value or any(_holds_none(item) for item in value.values())
    return value is None or (isinstance(value, list) and any(_holds_none(item) for item in value))


def _same_bag(old: Any, new: Any) -> bool:
    """0.0 and -0.0 compare equal and have other bytes."""
    return "-0.0" in canonical([old, new]).decode()


def test_the_key_of_a_known_dictionary() -> None:
    text = b'{"a":[1,2.5,"\\u00e9"],"b":{"c":null,"d":true}}'
    assert key({"b": {"d": True, "c": None}, "a": (1, 2.5, "é")}) == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}])
def test_numbers_that_json_cannot_hold(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical(value)


def test_keys_that_json_would_turn_into_text() -> None:
    with pytest.raises(TypeError):
        canonical({"a": [{1: 2}]})


def test_the_dictionary_holds_what_the_bytes_depend_on() -> None:
    made = task(dummies.JOIN, {"text": "x"}, {"file": source("a"), "text": ()})
    found = key_dictionary(made, {"file": ["d" * 64], "text": []}, {"numpy": "2.0"}, None)
    assert found == {
        "stage": "join", "version": 1, "params": {"text": "x"}, "inputs": {"file": ["d" * 64]},
        "tools": {"numpy": "2.0"},
    }  # fmt: skip
    assert key_dictionary(made, {"file": ["d" * 64]}, {"numpy": "2.0"}, "c0de") == {**found, "code": "c0de"}


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", 1, 2)]),
        ({"a": 1}, {"b": 2}, [("a", 1, None), ("b", None, 2)]),
        ({"a": 1}, {"a": 1.0}, [("a", 1, 1.0)]),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ([1, 2], [1, 3], [("[1]", 2, 3)]),
        ([1, 2, 3], [1, 3], [("[]", 2, None)]),
        ([{"n": 1}], [{"n": 0}, {"n": 1}], [("[]", None, {"n": 0})]),
        ({"a": []}, {"a": {}}, [("a", [], {})]),
    ],
)
def test_difference(old: Any, new: Any, changes: list[tuple[str, Any, Any]]) -> None:
    assert difference(old, new) == [Change(path=path, old=a, new=b) for path, a, b in changes]


def test_changes_as_sentences() -> None:
    assert describe(Change(path="params.calibration.method", old="minmax", new="percentile")) == (
        'calibration.method: "minmax" → "percentile"'
    )
    assert describe(Change(path="tools.onnxruntime", old="1.20", new="1.21")) == (
        'version of onnxruntime: "1.20" → "1.21"'
    )
    assert describe(Change(path="version", old=1, new=2)) == "stage version: 1 → 2"
    assert describe(Change(path="params.limit", old=None, new=3)) == "limit: 3 is new"
    assert describe(Change(path="params.limit", old=3, new=None)) == "limit: 3 is gone"


def test_explain_names_what_changed() -> None:
    head = task(dummies.JOIN)
    text = json.dumps([{"name": "a.jpg", "sha256": "1"}, {"name": "b.jpg", "sha256": "3"}])
    old_text = json.dumps([{"name": "a.jpg", "sha256": "1"}, {"name": "b.jpg", "sha256": "2"}])
    inputs = {"file": (*source("x"), *source("y")), "text": of(head), "listing": listing(text, "calibration data")}
    made = task(dummies.JOIN, {"text": "new"}, inputs)
    literal = inputs["listing"][0]
    assert isinstance(literal, Literal)
    old = {
        "version": 1, "params": {"text": "old"}, "tools": {"numpy": "1"}, "code": "1",
        "inputs": {"file": ["0", "1"], "text": ["2"], "listing": ["before"]},
    }  # fmt: skip
    new = {
        "version": 1, "params": {"text": "new"}, "tools": {"numpy": "2"}, "code": "2",
        "inputs": {"file": ["0", "9"], "text": ["8"], "listing": [literal.digest]},
    }  # fmt: skip
    assert explain(old, new, made, {"before": old_text.encode()}.get) == (
        'text: "old" → "new"',
        'version of numpy: "1" → "2"',
        "y changed",
        'calibration data changed: [1].sha256: "2" → "3"',
        "input text changed (text of join)",
        "the stage's source changed",
    )
    assert explain(old, old, made, lambda _: None) == ()
    assert explain(None, new, made, lambda _: None) == ("not built here before",)


def test_explain_counts_long_changes() -> None:
    made = task(dummies.JOIN, {}, {"file": tuple(item for n in range(20) for item in source(str(n)))})
    old = {"inputs": {"file": [f"old{n}" for n in range(20)]}}
    new = {"inputs": {"file": [f"new{n}" for n in range(20)]}}
    reasons = explain(old, new, made, lambda _: None)
    assert len(reasons) == 7
    assert reasons[-1] == "input file: 14 more changed"
    fewer = explain(old, {"inputs": {"file": ["old0", "x"]}}, made, lambda _: None)
    assert fewer == ("input file: 1 new and 19 gone",)
    turned = explain(old, {"inputs": {"file": old["inputs"]["file"][::-1]}}, made, lambda _: None)
    assert turned == ("input file: another order",)
