"""Merging and finding places, against plain dictionaries."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from npubake.document.tree import Mark, Node, json_path, merge

VALUES = st.recursive(
    st.integers(0, 9), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner)
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), VALUES)


def tree(value: Any, file: str) -> Node:
    mark = Mark(file=file, line=1, column=1)
    if isinstance(value, dict):
        return Node(value={name: tree(child, file) for name, child in value.items()}, mark=mark)
    if isinstance(value, list):
        return Node(value=[tree(child, file) for child in value], mark=mark)
    return Node(value=value, mark=mark)


@given(MAPPINGS, MAPPINGS)
def test_merging_keeps_the_laws(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = merge(tree(base, "base"), tree(over, "over")).plain()
    assert set(merged) == {*base, *over}
    for name, value in merged.items():
        if name not in over:
            assert value == base[name]
        elif isinstance(over[name], dict) and isinstance(base.get(name), dict):
            assert value == merge(tree(base[name], ""), tree(over[name], "")).plain()
        else:
            assert value == over[name]


def test_places_stay_those_of_their_files() -> None:
    merged = merge(tree({"a": {"x": 1, "y": [1]}}, "base"), tree({"a": {"y": [2]}}, "over"))
    assert merged.find(("a", "x")).mark.file == "base"
    assert merged.find(("a", "y", 0)).mark.file == "over"
    assert merged.find(("a", "z", 4)).mark.file == "over"  # the deepest that exists


def test_json_paths() -> None:
    assert json_path(()) == "$"
    assert json_path(("layer_overrides", 1, "match")) == "$.layer_overrides[1].match"
    assert json_path(("inputs", "a/b")) == '$.inputs["a/b"]'
