"""Document room: a tree against a JSON Schema (2020-12); every difference becomes a Fault at its place.

jsonschema is imported when the first document is validated, not before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from npubake.document.reader import Document
from npubake.document.tree import Node, json_path
from npubake.document.tree import Path as Place
from npubake.errors import Fault
from npubake.nearest import did_you_mean

_PLACES = 3  # blocks that have a key; of more, none is named
_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "nothing",
}


def schema_text(name: str) -> str:
    """The text of ``schemas/<name>.schema.json``: shipped in the package, or at the root of a checkout."""
    file = f"{name}.schema.json"
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "schemas", package.parent.parent / "schemas"):
        if (folder / file).is_file():
            return (folder / file).read_text(encoding="utf-8")
    raise FileNotFoundError(file)


@cache
def _validator(name: str) -> Any:
    import jsonschema

    extend: Any = jsonschema.validators.extend  # has no types of its own
    draft = jsonschema.Draft202012Validator
    # JSON Schema calls 16.0 an integer; here it would travel on as a float, where sizes and counts are due
    whole = draft.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    validator = extend(draft, type_checker=whole)
    return validator(json.loads(schema_text(name)))


def validate(document: Document, root: Node, schema: str) -> None:
    """Add to ``document.faults`` all that keeps ``root`` from being a valid ``schema`` document.

    Places that already have a fault (a YAML trap) get no second one, nor does a value of the wrong type for not being
    one of those accepted, too: its type is told, with what is accepted.
    """
    taken = {fault.where for fault in document.faults}
    errors = sorted(_validator(schema).iter_errors(root.plain()), key=_order)
    mistyped = {tuple(error.absolute_path) for error in errors if error.validator == "type"}
    for error in errors:
        place = tuple(error.absolute_path)
        said = error.validator == "enum" and place in mistyped
        if place not in document.faulty and not said:
            found = _translate(error, place, root, schema)
            document.faults.extend(fault for fault in found if fault.where not in taken)


def _order(error: Any) -> tuple[list[str], str]:
    return [str(step) for step in error.absolute_path], str(error.validator)


def _translate(error: Any, place: Place, root: Node, schema: str) -> Iterator[Fault]:
    node = root.find(place)
    where = str(node.mark)
    path = json_path(place)
    if error.validator == "additionalProperties":
        for name, fault in _unknown_keys(place, node, list(error.schema.get("properties", {}))):
            yield replace(fault, hint=f"{_elsewhere(schema, place, name)} {fault.hint}".strip())
        return
    if "propertyNames" in error.absolute_schema_path:
        yield from _wrong_key(error, place, node)
        return
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name in error.message.split("'")[1::2])
        hint = str(_properties(error.schema, missing).get("description", ""))
        yield Fault(what=f"the key {missing!r} is missing", where=where, path=path, hint=hint)
        return
    what, hint = _words(error, node)
    yield Fault(what=what, where=where, path=path, hint=hint)


def _properties(schema: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema.get("properties", {}).get(name, {})
    return found


def _unknown_keys(place: Place, node: Node, known: list[str]) -> Iterator[tuple[str, Fault]]:
    children = node.value if isinstance(node.value, dict) else {}
    for name, child in children.items():
        if name not in known:
            yield (
                name,
                Fault(
                    what=f"unknown key {name!r}",
                    where=str(child.key or child.mark),
                    path=json_path((*place, name)),
                    hint=did_you_mean(name, known),
                ),
            )


def _elsewhere(schema: str, place: Place, name: str) -> str:
    """Which blocks have a key of that very name, those nearest to ``place``; '' where none has, or too many."""
    blocks = {block: _steps_apart(place, block) for block in _blocks(schema).get(name, ())}
    least = min(blocks.values(), default=0)
    near = [".".join(block) for block, steps in sorted(blocks.items(), key=lambda item: item[1]) if steps <= least + 1]
    if not 0 < len(near) <= _PLACES:
        return ""
    return f"{name!r} is a key of {' or of '.join(near)}." if "" not in near else f"{name!r} stands at the top level."


def _steps_apart(place: Place, block: tuple[str, ...]) -> int:
    words = [step for step in place if isinstance(step, str)]
    shared = 0
    while shared < min(len(words), len(block)) and words[shared] == block[shared].removesuffix("[]"):
        shared += 1
    return len(words) + len(block) - 2 * shared


@cache
def _blocks(schema: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Key -> the blocks that have it, each the way to it; ``[]`` behind lists."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    whole = _validator(schema).schema
    for block, name in _keys(whole, whole, ()):
        found.setdefault(name, {})[block] = None
    return {name: tuple(blocks) for name, blocks in found.items()}


def _keys(whole: Any, schema: Any, block: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    for name, inner in schema.get("properties", {}).items():
        yield block, name
        yield from _keys(whole, inner, (*block, name))
    if block and isinstance(schema.get("items"), dict):
        yield from _keys(whole, schema["items"], (*block[:-1], f"{block[-1]}[]"))


def _wrong_key(error: Any, place: Place, node: Node) -> Iterator[Fault]:
    """A key of a mapping by name: not one of those there are, or not of the form that they have."""
    if error.validator == "enum":
        yield from (fault for _, fault in _unknown_keys(place, node, list(error.validator_value)))
        return
    child = node.find((error.instance,))
    hint = str(error.schema.get("description", error.message))
    where = str(child.key or child.mark)
    yield Fault(
        what=f"unknown key {error.instance!r}", where=where, path=json_path((*place, error.instance)), hint=hint
    )


def _words(error: Any, node: Node) -> tuple[str, str]:
    found = _found(node)
    limit = error.validator_value
    if error.validator == "type":
        kinds = [limit] if isinstance(limit, str) else limit
        accepted = " or ".join(_WORDS[kind] for kind in kinds)
        if "enum" in error.schema:
            accepted += f", one of {', '.join(json.dumps(value) for value in error.schema['enum'])}"
        return f"found {found}", f"Accepted: {accepted}.{_about(error.schema)}"
    if error.validator == "enum":
        names = [str(value) for value in limit if value is not None]
        return f"found {found}", did_you_mean(str(node.value), names) or f"Accepted: {', '.join(names)}."
    if error.validator == "const":
        return f"found {found}", f"Accepted: {json.dumps(limit)}.{_about(error.schema)}"
    bounds = {
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "more than",
        "exclusiveMaximum": "less than",
    }
    if error.validator in bounds:
        return f"found {found}", f"Accepted: {bounds[error.validator]} {limit}.{_about(error.schema)}"
    counts = {"minItems": "at least", "maxItems": "at most", "minProperties": "at least"}
    if error.validator in counts:
        size = len(node.value) if isinstance(node.value, (list, dict)) else 0
        return f"found {size} entries", f"Accepted: {counts[error.validator]} {limit}.{_about(error.schema)}"
    if error.validator == "maxLength":
        return f"found a text of {len(str(node.value))} characters", f"Accepted: at most {limit}.{_about(error.schema)}"
    if error.validator == "uniqueItems":
        return "an entry is given twice", "Each entry may stand once."
    return f"found {found}", str(error.schema.get("description", error.message))


def _about(schema: Any) -> str:
    description = schema.get("description", "")
    return f" {description}" if description else ""


def _found(node: Node) -> str:
    value = node.value
    if value is None:
        return "nothing (an empty value is null)"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    return f"the number {value}"
