"""Places as text."""

from __future__ import annotations

from npubake.document.tree import json_path


def test_json_paths() -> None:
    assert json_path(()) == "$"
    assert json_path(("layer_overrides", 1, "match")) == "$.layer_overrides[1].match"
    assert json_path(("inputs", "a/b")) == '$.inputs["a/b"]'
