"""Write the tables of docs/ from the schemas, the platform files, the command line's parser and the stage table.

    python docs/generate_reference.py            rewrites what stands between the markers of the pages
    python docs/generate_reference.py --check    exit 1 where a page is not current

A page holds ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``; what is between them belongs to this script.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from npubake.cli.parser import build_parser
from npubake.platforms import FACTS, Platform, load_platforms
from npubake.recipe.presets import PRESETS
from npubake.stages import STAGES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell(entry) for entry in line) + " |" for line in lines)


def keys(schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[object, ...]]:
    """(key, accepted, default, meaning) of every property below ``schema``."""
    for name, entry in schema.get("properties", {}).items():
        entry = resolved(entry, root)
        path = f"{prefix}{name}"
        default = f"`{json.dumps(entry['default'])}`" if "default" in entry else ""
        yield f"`{path}`", accepted(entry), default, entry["description"]
        yield from keys(entry, root, f"{path}.")
        inner = entry.get("additionalProperties")
        if isinstance(inner, dict):
            yield from keys(resolved(inner, root), root, f"{path}.<name>.")
        if "items" in entry:
            yield from keys(entry["items"], root, f"{path}[].")


def resolved(entry: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in entry:
        return entry
    found: Mapping[str, Any] = root["$defs"][entry["$ref"].rsplit("/", 1)[1]]
    return found


def accepted(entry: Mapping[str, Any]) -> str:
    names = entry.get("enum") or entry.get("then", {}).get("enum")
    if names:
        several = ", ".join(f"`{name}`" for name in names if name is not None)
        return several + (", or a mapping" if "then" in entry and "object" in entry["type"] else "")
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    kinds = entry.get("type", "")
    words = {"object": "mapping", "array": "list", "string": "text", "null": "null"}
    text = " or ".join(words.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    low, high = entry.get("minimum"), entry.get("maximum", entry.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f"{text}, {low} to {high}"
    return f"{text}, at least {low}" if low is not None else text


def recipe_keys() -> str:
    schema = json.loads((ROOT / "schemas" / "recipe.schema.json").read_text(encoding="utf-8"))
    return table(("key", "accepted", "default", "meaning"), list(keys(schema, schema)))


def presets() -> str:
    rows: list[tuple[object, ...]] = []
    for preset in PRESETS.values():
        resize = preset.resize
        size = f"{resize.kind} {resize.size[0]} x {resize.size[1]}, {resize.interpolation}" if resize else ""
        size += f", bars {resize.fill}" if resize and resize.fill is not None else ""
        size += f", crop {preset.crop[0]} x {preset.crop[1]}" if preset.crop else ""
        linear = f"/ {preset.divide_by}" if preset.divide_by else ""
        linear += f", mean {list(preset.mean)}, std {list(preset.std or ())} (0-1)" if preset.mean else ""
        data = "pictures" if preset.decode else "prepared tensors"
        if preset.sequence is not None:
            data += ", all inputs of one call" + ("" if preset.sequence.padded else "; whole sequences")
        rows.append((f"`{preset.name}`", preset.version, data, preset.channels or "", size, linear))
    return table(("preset", "version", "data", "channels", "resize (Pillow, uint8)", "linear step (float32)"), rows)


def shown(value: object) -> str:
    """A fact's value for people."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def platform_table() -> str:
    """A table for each vendor's kind of platform, one row a fact, one column a platform; * marks inferred values, **
    conflicting ones. Facts that say of all of them that the notion does not apply are left out.
    """
    platforms = load_platforms(ROOT)
    of_qualcomm = {name: found for name, found in platforms.items() if "qualcomm" in found.toolchains}
    others = {name: found for name, found in platforms.items() if name not in of_qualcomm}
    return "\n\n".join(facts_table(several) for several in (others, of_qualcomm))


def facts_table(platforms: Mapping[str, Platform]) -> str:
    stars = {"stated": "", "inferred": " *", "conflict": " **"}
    rows: list[tuple[object, ...]] = [
        ("`toolchains`", *(", ".join(platform.toolchains) for platform in platforms.values()))
    ]
    for name in FACTS:
        facts = [platform.facts()[name] for platform in platforms.values()]
        if any(fact.value is not None or fact.status != "stated" for fact in facts):
            rows.append((f"`{name}`", *(shown(fact.value) + stars[fact.status] for fact in facts)))
    return table(("fact", *platforms), rows)


def platform_sources() -> str:
    rows: list[tuple[object, ...]] = []
    for platform in load_platforms(ROOT).values():
        for name, fact in platform.facts().items():
            if fact.status != "stated":
                rows.append((platform.name, f"`{name}`", shown(fact.value), fact.status, fact.note, fact.source))
    return table(("platform", "fact", "value", "status", "why", "source"), rows)


def platform_keys() -> str:
    schema = json.loads((ROOT / "schemas" / "platform.schema.json").read_text(encoding="utf-8"))
    rows: list[tuple[object, ...]] = [
        (f"`{name}`", accepted(entry.get("properties", {}).get("value", entry)), entry["description"])
        for name, entry in schema["properties"].items()
    ]
    return table(("key", "accepted", "meaning"), rows)


def command_table() -> str:
    """Every command and option, from the parser itself."""
    parts = []
    for name, parser in commands(build_parser()):
        rows: list[tuple[object, ...]] = []
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
                continue
            words = ", ".join(action.option_strings) or action.metavar or action.dest
            value = f" {action.metavar}" if action.option_strings and isinstance(action.metavar, str) else ""
            rows.append((f"`{words}{value}`", action.help or ""))
        parts.append(f"### npubake {name}\n\n{parser.description}\n\n{table(('word', 'meaning'), rows)}")
    return "\n\n".join(parts)


def commands(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """(words, parser) of every command that has no commands below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                below = list(commands(child, f"{prefix}{name} "))
                yield from below or [(f"{prefix}{name}", child)]


def stage_table() -> str:
    rows: list[tuple[object, ...]] = [
        (
            f"`{stage.name}`",
            stage.version,
            ", ".join(f"{port}: {kind}" for port, kind in stage.inputs.items()),
            ", ".join(f"{port}: {kind}" for port, kind in stage.outputs.items()),
            ", ".join(stage.tools),
        )
        for stage in STAGES.values()
    ]
    return table(("stage", "version", "reads", "makes", "tools in its key"), rows)


PAGES = {
    "commandline.md": {"commands": command_table},
    "stages.md": {"stages": stage_table},
    "recipes.md": {"recipe keys": recipe_keys, "presets": presets},
    "platforms.md": {"facts": platform_table, "not stated": platform_sources, "platform keys": platform_keys},
}


def current(page: str) -> str:
    """The page with its generated parts written anew."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, make in PAGES[page].items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{page}: no markers for {name!r}")
        body = f"{begin}\n{make()}\n{end}"
        text = pattern.sub(body.replace("\\", r"\\"), text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not current")
    asked = parser.parse_args()
    stale = [page for page in PAGES if current(page) != (DOCS / page).read_text(encoding="utf-8")]
    for page in stale:
        if not asked.check:
            (DOCS / page).write_text(current(page), encoding="utf-8")
    return 1 if asked.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
