"""Recipe room: text and JSON lists of data files -> examples. Reads the list, looks whether its files are there.

Forms: a text file with one path a line (blank lines and lines that start with # are skipped); a JSON list of paths, or
of mappings input name -> path; and the vendor form ``{"info": {"input names": [...]}, "calib paths": [[...], ...]}``.
Paths are relative to the list.
"""

from __future__ import annotations

import json
import os.path
from pathlib import Path
from typing import Any

from npubake.errors import Fault
from npubake.recipe.places import why_no_file

Example = dict[str, tuple[str, Path]]  # input name -> (name in the listing, file)

_FORM = (
    'A JSON list of {"input": "file"}, of file names, or {"info": {"input names": [..]}, "calib paths": [[..], ..]}.'
)


def read_list(path: Path, faults: list[Fault]) -> list[Example]:
    """The examples of a list file; what is wrong with it is added to ``faults``."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        faults.append(Fault(what="the list is not UTF-8 text", where=str(path), hint="Save it as UTF-8."))
        return []
    rows = _json_rows(text, path, faults) if path.suffix.lower() == ".json" else _text_rows(text, path)
    examples = []
    for where, row in rows:
        example: Example = {}
        for key, name in row.items():
            file = Path(os.path.normpath(path.parent / name))
            reason = why_no_file(file)
            if reason:
                what = f"the listed file {name!r} is missing"
                if reason != "there is no such file":
                    what = f"the listed file {name!r} cannot be read: {reason}"
                faults.append(Fault(what=what, where=where, hint=f"Looked at {file}."))
            example[key] = (Path(os.path.normpath(name)).as_posix(), file)
        examples.append(example)
    return examples


Rows = list[tuple[str, dict[str, str]]]


def _text_rows(text: str, path: Path) -> Rows:
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1))
    return [(f"{path}:{number}", {"": line}) for number, line in lines if line and not line.startswith("#")]


def _json_rows(text: str, path: Path, faults: list[Fault]) -> Rows:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults.append(Fault(what=f"not JSON: {error}", where=str(path), hint=_FORM))
        return []
    names: list[str] | None = None
    entries = data
    if isinstance(data, dict) and "calib paths" in data:
        info = data.get("info")
        names = info.get("input names") if isinstance(info, dict) else None
        entries = data["calib paths"]
    if not isinstance(entries, list) or not (names is None or _all_text(names)):
        faults.append(Fault(what="not a list of examples", where=str(path), hint=_FORM))
        return []
    return _rows(entries, names, path, faults)


def _rows(entries: list[Any], names: list[str] | None, path: Path, faults: list[Fault]) -> Rows:
    rows: Rows = []
    for index, entry in enumerate(entries):
        where = f"{path}[{index}]"
        row = _row(entry, names)
        if row is None:
            faults.append(Fault(what=f"example {index} is {_short(entry)}", where=where, hint=_FORM))
        elif names is not None and list(row) != names:
            what = f"example {index} has {len(row)} files for {len(names)} inputs"
            faults.append(Fault(what=what, where=where, hint=f"One file for each of: {', '.join(names)}."))
        elif rows and list(rows[0][1]) != list(row) and set(rows[0][1]) != set(row):
            what = f"example {index} names the inputs {', '.join(row)}, the first one {', '.join(rows[0][1])}"
            faults.append(Fault(what=what, where=where, hint="One example holds all inputs, each under its name."))
        else:
            rows.append((where, row))
    return rows


def _row(entry: Any, names: list[str] | None) -> dict[str, str] | None:
    """input -> file name of one entry, or None where it has no known form."""
    if isinstance(entry, str):
        return {names[0] if names else "": entry}
    if isinstance(entry, dict) and entry and _all_text(list(entry.values())):
        return {str(key): value for key, value in entry.items()}
    if isinstance(entry, list) and _all_text(entry):
        if names is not None:
            return dict(zip([*names, *map(str, range(len(entry)))], entry, strict=False))
        return {"": entry[0]} if len(entry) == 1 else None
    return None


def _all_text(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) and value for value in values)


def _short(entry: Any) -> str:
    return json.dumps(entry)[:60]
