"""Command line room: which project the command is in. os alone, for commands that have nothing to do."""

from __future__ import annotations

from pathlib import Path

from npubake.errors import Fault, UsageError


def find(start: str) -> Path:
    """The nearest folder at or above ``start`` that holds ``recipes/``. Raises UsageError where there is none."""
    here = Path(start).resolve()
    for folder in (here, *here.parents):
        if (folder / "recipes").is_dir():
            return folder
    hint = "Run inside a project: a folder with recipes/, or one below it. 'npubake new MODEL.onnx' begins one."
    raise UsageError(Fault(what="no project here", where=str(here), hint=hint))
